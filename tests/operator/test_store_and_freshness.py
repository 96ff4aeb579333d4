"""What is remembered of requests, and how a deaf watch shows."""

from projection_operator.api.names import Key
from projection_operator.freshness import Freshness
from projection_operator.store import Store
from tests.operator.builders import request_body

KEY = Key("team", "llama")


def version(number: str, **spec: object) -> dict[str, object]:
    return request_body(metadata={"resourceVersion": number}, **spec)


def test_only_later_versions_are_news() -> None:
    store = Store()
    assert [store.put(version(number)) for number in ("9", "9", "10", "9")] == [True, False, True, False]


def test_versions_that_are_no_numbers_are_news_when_they_differ() -> None:
    store = Store()
    assert [store.put(version(text)) for text in ("a", "a", "b", "a")] == [True, False, True, True]


def test_requests_are_found_by_the_config_maps_of_their_own_namespace() -> None:
    store = Store()
    store.put(version("1", training={"configMapRef": {"name": "config", "key": "k"}}))
    assert store.depending_on(Key("team", "config")) == [KEY]
    assert store.depending_on(Key("other", "config")) == []
    store.remove(KEY)
    assert store.depending_on(Key("team", "config")) == []


def test_configurations_are_not_kept_in_memory() -> None:
    store = Store()
    store.put(version("1", training={"inline": "SECRET-CONFIGURATION"}))
    assert "SECRET" not in repr(list(store.items()))


def test_a_watch_that_delivers_what_lists_show_has_no_lag() -> None:
    watch = Freshness()
    watch.delivered(KEY, "5", now=1.0)
    assert watch.listed({KEY: "5"}, began=2.0, now=2.1) == []
    assert watch.lag_seconds(1000.0) == 0.0


def test_what_a_list_shows_and_the_watch_does_not_ages_until_it_is_delivered() -> None:
    watch = Freshness()
    watch.delivered(KEY, "5", now=1.0)
    assert watch.listed({KEY: "6"}, began=10.0, now=10.0) == [KEY]
    assert watch.listed({KEY: "6"}, began=40.0, now=40.0) == [KEY]
    assert watch.lag_seconds(70.0) == 60.0
    watch.delivered(KEY, "7", now=71.0)
    assert watch.lag_seconds(71.0) == 0.0


def test_a_delivery_during_the_list_proves_the_watch_alive() -> None:
    watch = Freshness()
    watch.delivered(KEY, "6", now=10.5)
    assert watch.listed({KEY: "5"}, began=10.0, now=11.0) == []


def test_deleted_objects_are_not_missed() -> None:
    watch = Freshness()
    watch.listed({KEY: "5"}, began=1.0, now=1.0)
    watch.deleted(KEY)
    assert watch.lag_seconds(100.0) == 0.0
    watch.listed({KEY: "5"}, began=100.0, now=100.0)
    watch.listed({}, began=200.0, now=200.0)
    assert watch.lag_seconds(300.0) == 0.0


def test_objects_created_after_the_list_began_stay_known() -> None:
    watch = Freshness()
    watch.delivered(KEY, "5", now=10.5)
    watch.listed({}, began=10.0, now=11.0)
    assert watch.listed({KEY: "5"}, began=40.0, now=40.0) == []
