"""Label positions in a scatter plot: beside their points, without overlap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LINE, _CHARACTER, _GAP = 12.0, 6.3, 8.0  # CSS pixels: line height, mean character width, point to text
_POINT = 4.0  # half the side of a point


@dataclass(frozen=True)
class Place:
    """A label's position: side of the point, and height."""

    left: bool
    y: float


Box = tuple[float, float, float, float]


def place(points: Sequence[tuple[float, float, str]], width: float, height: float) -> list[Place]:
    """A position for each point's label. points: (x, y, text) in pixels of a panel; y grows downwards.

    The nearest free position: beside the point, else half a line higher or lower, and so on; beside the point if none is free.
    """
    taken: list[Box] = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y, _ in points]
    found: dict[int, Place] = {}
    for index in sorted(range(len(points)), key=lambda index: (points[index][1], points[index][0], points[index][2])):
        x, y, text = points[index]
        options = list(_options(x, y, len(text), width, height))
        chosen, box = next(((p, b) for p, b in options if not any(_overlap(b, other) for other in taken)), options[0])
        taken.append(box)
        found[index] = chosen
    return [found[index] for index in range(len(points))]


def _options(x: float, y: float, characters: int, width: float, height: float) -> Iterator[tuple[Place, Box]]:
    wide = characters * _CHARACTER
    sides = [left for left in (False, True) if (x - _GAP - wide >= 0 if left else x + _GAP + wide <= width)] or [x > width / 2]
    for step in range(int(2 * height / _LINE)):
        for at in dict.fromkeys((y - step * _LINE / 2, y + step * _LINE / 2)):
            for left in sides:
                start = x - _GAP - wide if left else x + _GAP
                # A shifted label must be inside the panel; an unshifted one may overlap the edge.
                if step == 0 or _LINE / 2 <= at <= height - _LINE / 2:
                    yield Place(left, at), (start, at - _LINE / 2, start + wide, at + _LINE / 2)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
