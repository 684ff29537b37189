"""What is installed: the licence of every package that bcnn needs, and known vulnerabilities of these versions.

Run:      python -m tests.audit          (make audit)

The list of licences needs no network. Vulnerabilities are asked for by pip-audit; where its service does not
answer that is said, and no error. A vulnerability that is known and mended elsewhere ends the command with exit code 1.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

# Words by which licences are told that allow everything but to claim authorship; others are for people to see.
FREE = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|MPL|Mozilla|HPND|CMU|Unlicense|Zlib|CC0|0BSD)\b",
    re.IGNORECASE,
)


def needed(name: str = "bcnn") -> dict[str, Distribution]:
    """The packages that one needs at runtime, at any depth, by their names."""
    found: dict[str, Distribution] = {}
    coming = [name]
    while coming:
        own = re.sub(r"[-_.]+", "-", coming.pop()).lower()
        if own in found:
            continue
        try:
            found[own] = distribution(own)
        except PackageNotFoundError:
            continue  # for other systems, or optional
        for line in found[own].requires or []:
            if "extra ==" not in line:
                coming.append(re.match(r"[\w.-]+", line)[0])  # type: ignore[index]
    return found


def licence_of(package: Distribution) -> str:
    """What a package says of its licence: an expression, a classifier, or the first line of a text."""
    about = package.metadata
    told = about.get("License-Expression")
    classifiers = [
        line.split("::")[-1].strip() for line in about.get_all("Classifier") or [] if line.startswith("License")
    ]
    named = [line for line in classifiers if line != "OSI Approved"]
    text = (about.get("License") or "").strip().splitlines()
    return told or "; ".join(named) or (text[0] if text else "not said")


def print_licences() -> list[str]:
    """A line per package; returns those whose licence is not among the usual free ones."""
    packages = {name: package for name, package in sorted(needed().items()) if name != "bcnn"}
    width = max(map(len, packages))
    for name, package in packages.items():
        print(f"{name:{width}}  {package.version:14}  {licence_of(package)}")
    return [name for name, package in packages.items() if not FREE.search(licence_of(package))]


def vulnerabilities() -> tuple[list[str], list[str]]:
    """Known ones of these versions, and the packages that nobody could be asked about."""
    lines = [f"{name}=={own.version.partition('+')[0]}" for name, own in sorted(needed().items()) if name != "bcnn"]
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    try:
        done = subprocess.run(
            [*command, "--requirement", "/dev/stdin"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=300,
        )
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return [], lines
    told = [
        f"{own['name']} {own['version']}: {one['id']}, mended in {', '.join(one['fix_versions']) or 'no version yet'}"
        for own in found
        for one in own.get("vulns", [])
    ]
    return told, [own["name"] for own in found if "vulns" not in own]


def main() -> int:
    odd = print_licences()
    if odd:
        print(f"\nTo look at, since their licences are not among the usual free ones: {', '.join(odd)}.")
    found, unasked = vulnerabilities()
    if asked := len(needed()) - 1 - len(unasked):
        print(f"\n{len(found)} known vulnerabilities in {asked} packages.", *found, sep="\n  ")
    if unasked:
        print(f"\nNOT ASKED FOR: {len(unasked)} packages, such as {unasked[0]}; pip-audit or its service is not there.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
