"""A processor that promises AMX and does not keep it must not end the process."""

import subprocess

import pytest

from bcnn.descriptors import bfloat16


@pytest.mark.parametrize(
    ("flags", "code", "told"), [("amx_bf16", -4, True), ("amx_bf16", 0, False), ("sse2", -4, False)]
)
def test_amx_is_avoided_only_where_it_is_announced_and_broken(tmp_path, monkeypatch, flags, code, told):
    monkeypatch.delenv(bfloat16.VARIABLE, raising=False)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, code))
    (tmp_path / "cpuinfo").write_text(f"flags: {flags}")
    assert bfloat16.avoid_broken_amx(tmp_path / "cpuinfo") == told
    assert bfloat16.os.environ.get(bfloat16.VARIABLE) == (bfloat16.WITHOUT_AMX if told else None)
    monkeypatch.delenv(bfloat16.VARIABLE, raising=False)


def test_the_users_own_setting_stays(monkeypatch):
    monkeypatch.setenv(bfloat16.VARIABLE, "AVX2")
    assert not bfloat16.avoid_broken_amx()
    assert bfloat16.os.environ[bfloat16.VARIABLE] == "AVX2"
