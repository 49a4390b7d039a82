"""Plain softmax attention, and the same with keys wider than values."""
from motet import layers
from motet.mechanism import Mechanism


class SoftmaxAttention(Mechanism):
    """Plain softmax attention: MHA, grouped (GQA) and multi-query (MQA, num_kv_heads=1); the baseline.

        out_h = softmax(q_h . k_g / sqrt(d) + bias) v_g,   g = h / (num_heads / num_kv_heads)

    With a head norm out_h is normed before the output projection, as differential attention V1 does.
    Source: Vaswani et al. 2017; grouped queries arXiv:2305.13245.
    """

    mechanism = "softmax"

    def add_extras(self):
        self.subln = layers.head_norm(self)

    def finish(self, out, x=None):
        self._check_out(out)
        return super().finish(out if self.subln is None else self.subln(out), x)


class KeySizeAttention(Mechanism):
    """Queries and keys wider than values: a head's scores have rank at most key_dim.

        out_h = softmax(q_h . k_h / sqrt(key_dim)) v_h

    Rotary embedding and QK norm act on key_dim. Source: Bhojanapalli et al., ICML 2020, arXiv:2002.07028.
    """

    mechanism = "key_size"

    def sizes(self):
        super().sizes()
        head_dim = self.key_dim
        self.key_dim = self.options["key_dim"] or 2 * head_dim
        self.value_dim = self.options["value_dim"] or head_dim
