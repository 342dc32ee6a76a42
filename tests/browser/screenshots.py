"""`python tests/browser/screenshots.py [DIRECTORY]`: the pictures of the admin page in deploy/observability.

Needs `pip install pillow` to make them small.
"""

import io
import sys
import tempfile
import time
from pathlib import Path

import httpx
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from chromium import Chromium  # noqa: E402 - its place must be known first
from shown_proxy import ShownProxy  # noqa: E402

SECONDS_OF_LOAD = 30
SIZES = {"light": (1220, 1000), "dark": (1220, 1000), "narrow": (420, 900)}


def main() -> None:
    """Write them."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "deploy/observability"
    with tempfile.TemporaryDirectory() as name, ShownProxy(Path(name), context=3) as proxy:
        chromium = Chromium(Path(name))
        try:
            chromium.open(f"{proxy.admin_url}/admin/")
            context, generation = proxy.cluster.context_workers, proxy.cluster.generation_workers
            answer = httpx.post(
                f"{proxy.admin_url}/admin/workers/drain",
                json={"workers": [context[1].address]},
                trust_env=False,
            )
            answer.raise_for_status()
            context[2].board.add({"kind": "reset"})
            generation[0].board.add({"kind": "cut", "after_events": 3, "skip": 50, "count": 2})
            generation[1].board.add({"kind": "status", "status": 500, "skip": 150, "count": 2})
            time.sleep(SECONDS_OF_LOAD)
            for look in sys.argv[2:] or ("light", "dark"):
                chromium.look(*SIZES[look], "dark" if look == "dark" else "light")
                time.sleep(1.5)
                path = target / f"admin-page-{look}.png"
                path.write_bytes(small(chromium.screenshot()))
                sys.stdout.write(f"{path}: {path.stat().st_size} bytes {chromium.complaints or ''}\n")
        finally:
            chromium.close()


def small(png: bytes) -> bytes:
    """The same picture with 128 colours."""
    made = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
    return made.getvalue()


if __name__ == "__main__":
    main()
