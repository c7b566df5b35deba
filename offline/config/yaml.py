"""Configuration files: YAML to typed records and back, and the place of the shipped ones.

Reading is strict: a repeated key, an unknown field or a value of the wrong type is an error that names its place.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

from offline.canonical import encode
from offline.errors import ConfigurationError, DataError

T = TypeVar("T")


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses repeated keys, and the merge key, which can hide one; dates stay text."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:timestamp"]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, "only plain keys are allowed", key_node.start_mark)
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, kind: type[T], where: str) -> T:
    """A typed configuration from YAML; ConfigurationError names the place and the known fields."""
    try:
        raw = yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{where}{place}: {problem}") from error
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # Not wrapped by PyYAML: an impossible date, a tag that does not fit its value, a list nested too deeply.
        raise ConfigurationError(f"{where}: not valid YAML: {type(error).__name__}: {error}") from error
    try:
        value = msgspec.convert(raw, kind)
        encode(value)  # everything that is configured must have canonical bytes
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{where}: {error}{_hint(str(error), kind)}{_choices(str(error), kind)}") from error
    except (DataError, RecursionError) as error:
        raise ConfigurationError(f"{where}: {error}") from error
    return value


# The largest C int: libraries and engines take no larger number, and no list, cap or time limit needs one.
LARGEST = (1 << 31) - 1


def check_numbers(value: Any, where: str) -> None:
    """ConfigurationError for an integer beyond ±`LARGEST` in a configuration's plain values; seeds are exempt."""
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ConfigurationError(f"{where}: {value} is too large; numbers go up to {LARGEST}")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key != "seed":
                check_numbers(inner, f"{where}: {key}")
    elif isinstance(value, list | tuple):
        for inner in value:
            check_numbers(inner, where)


def check(condition: bool, message: str) -> None:
    """ConfigurationError unless the condition holds."""
    if not condition:
        raise ConfigurationError(message)


def _hint(message: str, kind: type[Any]) -> str:
    if "unknown field" not in message:
        return ""
    unknown = message.split("`")[1]
    # msgspec gives no place for the outermost record, so an unknown field without a place is one of that record.
    structs = _structs(kind, set()) if " - at " in message else {kind}
    known = sorted({field for struct in structs for field in struct.__struct_fields__})
    close = difflib.get_close_matches(unknown, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else "; remove it"


# msgspec's messages, with the place, for a value outside a list of choices and for a record without its tag.
_NO_CHOICE = re.compile(
    r"(Invalid (enum )?value '?(?P<value>.*?)'?|.* missing required field `(?P<field>\w+)`) - at `\$(?P<path>\S*)`", re.DOTALL
)
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")


def _choices(message: str, kind: type[Any]) -> str:
    """The known values, if msgspec's message is about a place that takes one of a list or one kind of record; else nothing."""
    found = _NO_CHOICE.fullmatch(message)
    if found is None:
        return ""
    kinds = [inspect.type_info(kind)]
    for field in (*_STEP.findall(found["path"]), *filter(None, [found["field"]])):
        kinds = [below for each in kinds for below in _inside(each, field)]
    values = sorted(
        {str(value) for each in kinds for one in _each(each) if isinstance(one, inspect.LiteralType) for value in one.values}
    )
    theirs = f"; what a package adds is `kind: plugin, loader: {found['value'] or 'NAME'}`" if "plugin" in values else ""
    return f"; known: {', '.join(values)}{theirs}" if values else ""


def _each(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _inside(kind: inspect.Type, field: str) -> Iterator[inspect.Type]:
    """The types of a field of a type (a tag is a list of one value); field "": of a list's items or a map's values."""
    for one in _each(kind):
        if isinstance(one, inspect.StructType):
            yield from (own.type for own in one.fields if own.encode_name == field)
            if field and one.tag_field == field:
                yield inspect.LiteralType((one.tag,))
        elif not field and isinstance(one, inspect.CollectionType):
            yield one.item_type
        elif not field and isinstance(one, inspect.DictType):
            yield one.value_type


def _structs(kind: Any, seen: set[Any]) -> set[type[msgspec.Struct]]:
    """All record types that can occur inside `kind`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind in seen:
            return seen
        seen.add(kind)
        for field in msgspec.structs.fields(kind):
            _structs(field.type, seen)
    for argument in getattr(kind, "__args__", ()):
        _structs(argument, seen)
    return seen


def load_yaml(path: Path, kind: type[T]) -> T:
    """A typed configuration file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error
    return parse_yaml(text, kind, str(path))


def configs_folder() -> Path:
    """The folder of the shipped configuration: `coldread_configs` in a wheel, `configs` in a source tree."""
    top = Path(__file__).resolve().parents[2]
    installed = top / "coldread_configs"
    return installed if installed.is_dir() else top / "configs"


def find_config(folder: str, name: str, beside: Path = Path()) -> Path:
    """The file of a configuration given as a path or by the name of a shipped one; ConfigurationError if there is none.

    A relative path is tried from `beside`, the folder of the file that names it, then from the working folder.
    """
    given = Path(name)
    for path in (beside / given, given):
        if given.suffix in {".yaml", ".yml"} and path.is_file():
            return path
    shipped = configs_folder() / folder / f"{given.stem if given.suffix in {'.yaml', '.yml'} else name}.yaml"
    if shipped.is_file() and "/" not in name.removeprefix(f"configs/{folder}/"):
        return shipped
    known = sorted(path.stem for path in (configs_folder() / folder).glob("*.yaml"))
    raise ConfigurationError(f"no {folder} configuration {name!r}: neither a file nor one of {', '.join(known)}")


class _Dumper(yaml.SafeDumper):
    """YAML that double-quotes texts with line breaks that PyYAML would not read back from another style."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if any(c in text for c in "\r\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(value: msgspec.Struct) -> bytes:
    """The one YAML form of a configuration: sorted keys, block style, UTF-8."""
    text: str = yaml.dump(
        msgspec.to_builtins(value),
        Dumper=_Dumper,
        sort_keys=True,
        allow_unicode=True,
        default_flow_style=False,
        width=10_000,
    )
    return text.encode()
