"""Loads libmotet_ops.so, which registers torch.ops.motet."""
import pathlib

import torch

_NAME = "libmotet_ops.so"


def _path():
    """Beside this file when installed; in build/ of the repository otherwise."""
    folder = pathlib.Path(__file__).resolve().parent
    places = [folder / _NAME, folder.parents[1] / "build" / _NAME]
    for place in places:
        if place.is_file():
            return place
    raise ImportError(
        f"motet: {_NAME} is neither at {places[0]} nor at {places[1]}, want `pip install --no-build-isolation .`"
    )


def load():
    if hasattr(torch.ops.motet, "composed_attention"):
        return  # somebody loaded it
    path = _path()
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise ImportError(
            f"motet: {path} does not load into PyTorch {torch.__version__}, want it built for this one "
            f"(pip install --no-build-isolation --force-reinstall --no-deps .): {str(error).splitlines()[0]}"
        ) from None


load()
