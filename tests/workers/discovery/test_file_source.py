"""A real file; the waiting between two looks is where each test changes it."""

import os
from contextlib import aclosing
from pathlib import Path

import pytest
from loop_lag import LoopLag
from told import told_by

from proxy.config.discovery.file import FileEntry
from proxy.workers.discovery.file import FileSource

ONE = "- {url: 'a:1', role: context}\n"
TWO = f"{ONE}- {{url: 'b:1', role: generation, model: m, labels: {{zone: z}}}}\n"


class Watched:
    """A source whose sleeps carry out the steps, one after the other."""

    def __init__(self, path: Path, *steps):
        self.path = path
        self.steps = list(steps)
        self.source = FileSource(FileEntry(name="file", path=str(path), interval=7.0), sleep=self.sleep)
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        if self.steps and (step := self.steps.pop(0)) is not None:
            step()

    def write(self, text):
        return lambda: self.path.write_text(text)

    async def lists(self, number):
        """What the next looks tell; a problem ends them."""
        return await told_by(self.source, number, "host")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "workers.yaml"
    path.write_text(ONE)
    return path


async def test_what_it_lists(path):
    path.write_text(TWO)
    source = Watched(path).source
    async with aclosing(source.changes()) as changes:
        listed = await anext(changes)
    assert [(w.address.text, w.role, w.model, w.labels) for w in listed] == [
        ("a:1", "context", None, {}),
        ("b:1", "generation", "m", {"zone": "z"}),
    ]


async def test_changes_are_seen(path):
    watched = Watched(path, None, None, lambda: path.write_text(TWO))
    assert await watched.lists(3) == [["a"], ["a"], ["a", "b"]]
    assert watched.slept == [0.2, 7.0, 7.0, 0.2]


async def test_the_same_size_at_the_same_time(path):
    def rewrite():
        before = path.stat()
        path.write_text(ONE.replace("a:1", "z:1"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert await Watched(path, None, rewrite).lists(2) == [["a"], ["z"]]


async def test_a_file_that_is_being_written_is_not_used(path):
    """Each of its beginnings is valid."""
    watched = Watched(path)
    watched.steps = [None, watched.write(ONE), watched.write(TWO), watched.write(TWO)]
    path.write_text("[]")
    assert await watched.lists(2) == [[], ["a", "b"]]


async def test_an_atomic_replacement(path):
    def replace():
        (path.parent / "new").write_text(TWO)
        os.replace(path.parent / "new", path)

    assert await Watched(path, None, replace).lists(2) == [["a"], ["a", "b"]]


async def test_a_config_map(tmp_path):
    """Kubernetes exchanges the link `..data`, through which the file is reached."""
    for name, text in (("one", ONE), ("two", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "workers.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("one")
    path = tmp_path / "workers.yaml"
    path.symlink_to("..data/workers.yaml")

    def swap():
        (tmp_path / "..tmp").symlink_to("two")
        os.replace(tmp_path / "..tmp", tmp_path / "..data")

    assert await Watched(path, None, swap).lists(2) == [["a"], ["a", "b"]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- {url: 'a:1', role: contex}", "workers[0].role"),
        ("- {url: 'a:1'", "line 1"),
        ("a: 1", "expected a list"),
        (f"{ONE}{ONE}", "the same worker"),
    ],
)
async def test_a_file_that_makes_no_sense(path, text, problem):
    watched = Watched(path)
    watched.steps = [None, watched.write(text)]
    (good, told) = await watched.lists(2)
    assert good == ["a"]
    assert problem in told
    assert str(path) in told
    # It is not parsed again, still wrong, and used as soon as it is right.
    (told_again,) = await watched.lists(1)
    assert told_again == told
    path.write_text(TWO)
    assert await watched.lists(1) == [["a", "b"]]


async def test_the_event_loop_turns_while_a_long_list_is_read(path):
    path.write_text("".join(f"- {{url: 'w{n}:1', role: context}}\n" for n in range(1000)))
    async with LoopLag() as lag:
        (listed,) = await Watched(path).lists(1)
    assert len(listed) == 1000
    assert lag.worst < 0.25


async def test_bytes_that_are_no_text(path):
    path.write_bytes(b"\xff")
    (told,) = await Watched(path).lists(1)
    assert "not UTF-8" in told


async def test_a_file_that_goes_and_comes(path):
    watched = Watched(path, None, path.unlink)
    (good, told) = await watched.lists(2)
    assert good == ["a"]
    assert "No such file" in told
    path.write_text(ONE)
    assert await watched.lists(1) == [["a"]]
