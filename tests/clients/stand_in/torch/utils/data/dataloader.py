from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class DataLoader(Generic[Item]):
    """Loads item by item; GuideLLM's batches have one."""

    def __init__(
        self, dataset: Iterable[Any], collate_fn: Callable[[list[Any]], Item], **options: Any
    ) -> None:
        self.dataset = dataset
        self._collate = collate_fn

    def __iter__(self) -> Iterator[Item]:
        return (self._collate([item]) for item in self.dataset)
