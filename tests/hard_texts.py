"""Random texts over the parts of Unicode that tokenizers get wrong."""
import random

RANGES = [(0x20, 0x7F)] * 6 + [
    (0, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x800), (0x900, 0xE00), (0xE00, 0x1000),
    (0x1000, 0x1200), (0x1100, 0x1200), (0x1E00, 0x2070), (0x2000, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3130),
    (0xAC00, 0xD7A4), (0x4E00, 0x4F00), (0xF900, 0xFB50), (0xFB50, 0xFE00), (0xFE00, 0x10000), (0x10000, 0x12000),
    (0x16000, 0x17000), (0x1D100, 0x1D800), (0x1E000, 0x20000), (0x2E000, 0x2FA20), (0xE0000, 0xE0200),
]  # fmt: skip
WORDS = [
    "'s", "'LL", "'\u017f", " the", "hello", " ", "  ", "   ", "\n", "\r\n", "\t", "1", "23", "4567", "\u00e9", "e\u0301",
    "\u1100\u1161\u11a8", "\uac00\u11a8", "<|endoftext|>", "<s>", "\u3000", "\u00a0", "\u2581", "\u200d", "\u180e",
    "\u0344", "\u0958", "\ufb01", "\u0130", "\u0345", "a\u0315\u0300", "don't", "we'RE", "x" * 9,
    "\U0001f469\u200d\U0001f469",
]  # fmt: skip


def hard_texts(count, seed):
    """`count` short texts, the same for the same seed."""
    source = random.Random(seed)

    def character(begin, end):
        while True:
            value = source.randrange(begin, end)
            if not 0xD800 <= value < 0xE000:
                return chr(value)

    def text():
        own = source.choice(RANGES)
        out = []
        for _ in range(source.randrange(14)):
            kind = source.random()
            if kind < 0.35:
                out.append(source.choice(WORDS))
            elif kind < 0.5:
                out.append(character(*source.choice(RANGES)))
            elif kind < 0.55:
                out.append(character(0, 0x110000))
            else:
                out.append(character(*own))
        return "".join(out)

    return [text() for _ in range(count)]
