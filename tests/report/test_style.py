"""The look that figures and page share: every colour can be read on its ground, and none carries a meaning alone."""

import re
from pathlib import Path

import pytest

from fupareto.report import style

SHEET = (Path(style.__file__).parent / "style.css").read_text()
SCHEMES = [dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)]
READ = ("ink", "muted", "forget", "retained", "neutral", "truth", "violet", "ochre")


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as the Web Content Accessibility Guidelines define it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark", "print"])
def test_every_colour_can_be_read_on_its_ground(scheme: dict[str, str]) -> None:
    assert set(style.ROLES.values()) <= set(scheme)
    for role in READ:
        for ground in ("paper", "page", "shade"):
            dim, bright = sorted((luminance(scheme[role]), luminance(scheme[ground])))
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (role, ground)


def test_the_figures_fixed_colours_are_those_of_the_light_page() -> None:
    assert {role: SCHEMES[0][role] for role in style.ROLES.values()} == {v: k for k, v in style.ROLES.items()}


def test_improvements_and_expansions_differ_by_shape() -> None:
    shapes = [style.phase_mark(phase)["marker"] for phase in ("improve", "expand", "recover", "failed", "other")]
    assert len(set(shapes)) == len(shapes)
    looks = [(style.model_mark(stage)["marker"], str(style.model_mark(stage)["linestyle"])) for stage in style.MODELS]
    assert len(set(looks)) == len(looks)
