"""Judges requests by the models of Oracle's own Python SDK, which are generated from Oracle's descriptions: fields that are not known or not
there, values of another type, and values that an enumeration does not have. It reads [[package, model, document], …] and writes what is wrong."""

import ast
import importlib
import json
import re
import sys
import textwrap

wrong = []


def setter_values(cls, name):
    """The values that the setter of a property allows; None where it allows all."""
    import inspect

    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(getattr(cls, name).fset)))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "allowed_values":
            return ast.literal_eval(node.value)
    return None


def judge_value(models, kind, value, at):
    listed = re.fullmatch(r"list\[(.*)\]", kind)
    mapped = re.fullmatch(r"dict\(str, (.*)\)", kind)
    scalar = {"str": str, "bool": bool, "int": int, "float": (int, float), "object": object}.get(kind)
    if listed or mapped:
        if not isinstance(value, list if listed else dict):
            wrong.append(f"{at}: {value!r} is no {kind}")
        elif listed:
            for n, one in enumerate(value):
                judge_value(models, listed[1], one, f"{at}.{n}")
        else:
            for key, one in value.items():
                judge_value(models, mapped[1], one, f"{at}.{key}")
    elif scalar is not None:
        if not isinstance(value, scalar) or scalar is int and isinstance(value, bool):
            wrong.append(f"{at}: {value!r} is no {kind}")
    elif isinstance(value, dict):
        judge(models, kind, value, at)
    else:
        wrong.append(f"{at}: {value!r} is no {kind}")


def judge(models, model, document, at):
    cls = getattr(models, model)
    if hasattr(cls, "get_subtype"):
        cls = getattr(models, cls.get_subtype(document))
    o = cls()
    names = {field: name for name, field in o.attribute_map.items()}
    for field in document.keys() - names.keys():
        wrong.append(f"{at}: {model} has no field {field}")
    for field, name in names.items():
        value = document.get(field)
        if value is None:
            if (getattr(cls, name).__doc__ or "").strip().startswith("**[Required]**"):
                wrong.append(f"{at}: {model} lacks {field}")
            continue
        allowed = setter_values(cls, name)
        for one in value if isinstance(value, list) else [value]:
            if allowed and one not in allowed:
                wrong.append(f"{at}.{field}: {one!r} is none of {allowed}")
        judge_value(models, o.swagger_types[name], value, f"{at}.{field}")


for package, model, document in json.load(sys.stdin):
    judge(importlib.import_module(f"oci.{package}.models"), model, document, model)
json.dump(sorted(set(wrong)), sys.stdout)
