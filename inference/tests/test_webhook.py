"""The wake-up: who may wake, and that a wake-up is followed at once. With the real MLflow below."""

import base64
import hashlib
import hmac
import socket
import threading
import time

import httpx
import pytest

from smartcache import config as configs
from smartcache.inference import webhook
from smartcache.inference.install import BundleDir
from smartcache.inference.registry import Registry
from smartcache.inference.rollout import Fleet
from smartcache.inference.watch import Watch

SECRET = "sixteen characters, or more"
BODY = b'{"entity":"model_version_alias"}'


def settings(**more):
    return configs.load().watch.model_copy(update={"webhook_port": 0, **more})


def headers(body=BODY, secret=SECRET, sent=None, identity="an-id"):
    sent = str(int(time.time())) if sent is None else sent
    mac = hmac.new(secret.encode(), f"{identity}.{sent}.".encode() + body, hashlib.sha256).digest()
    return {"X-MLflow-Delivery-Id": identity, "X-MLflow-Timestamp": sent, "X-MLflow-Signature": "v1," + base64.b64encode(mac).decode()}


@pytest.fixture
def wake():
    return threading.Event()


@pytest.fixture
def url(wake):
    with webhook.listen(settings(), SECRET, wake) as port:
        yield f"http://127.0.0.1:{port}/"


def test_a_signed_message_wakes(url, wake):
    assert httpx.post(url, content=BODY, headers=headers()).status_code == 204
    assert wake.is_set()


@pytest.mark.parametrize(
    "sent",
    [
        lambda: {},
        lambda: headers(secret="another secret, also long"),
        lambda: headers(body=b"another body"),
        lambda: headers() | {"X-MLflow-Delivery-Id": "another"},
        lambda: headers() | {"X-MLflow-Timestamp": "1"},
        lambda: headers(sent="1000000000"),
        lambda: headers(sent="9999999999"),
        lambda: headers(sent="-1"),
        lambda: headers(sent=""),
        lambda: headers(sent="9" * 400),
        lambda: headers() | {"X-MLflow-Signature": ""},
        lambda: headers() | {"X-MLflow-Signature": "v2," + headers()["X-MLflow-Signature"][3:]},
    ],
)
def test_what_is_not_signed_wakes_nobody(url, wake, sent):
    assert httpx.post(url, content=BODY, headers=sent()).status_code == 401  # made now: an old one is refused for its age
    assert not wake.is_set()


@pytest.mark.parametrize("length", ["", "x", "-1", "65537", "9" * 30, "0" * 20 + "99999999"])
def test_a_body_that_is_too_long_is_not_read(url, wake, length):
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1].strip("/"))), timeout=5) as client:
        client.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.0 413")
    assert not wake.is_set()


def test_who_hangs_up_does_no_harm(url, wake, capsys):
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1].strip("/"))), timeout=5) as client:
        client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
    assert httpx.get(url).status_code == 501
    assert httpx.post(url, content=BODY, headers=headers()).status_code == 204
    assert capsys.readouterr().err == ""


def test_a_wake_up_is_followed_at_once(fakes, url, wake, tmp_path):
    """The poll would come in an hour."""
    registry, stop = fakes.FakeRegistry(), threading.Event()
    asked = threading.Semaphore(0)
    ask = registry.champion
    registry.champion = lambda: (asked.release(), ask())[1]
    watch = Watch(registry, BundleDir(tmp_path / "b", "reuse"), Fleet([], 0), configs.load(), "", lambda _: None)
    thread = threading.Thread(target=watch.run, args=(stop, 3600.0, wake))
    thread.start()
    try:
        assert asked.acquire(timeout=60)
        httpx.post(url, content=BODY, headers=headers())
        assert asked.acquire(timeout=60)
    finally:
        stop.set()
        wake.set()
        thread.join(10)
    assert not thread.is_alive()


def test_a_wake_up_as_endpoints_are_waited_for_is_not_lost(registry, server, publish, wake, tmp_path):
    """It was for the challenger, which had been looked at by then; the champion, which is looked at meanwhile, has not moved."""
    config = configs.parse(
        {"gates": {"replay_days": 0, "latency_requests": 0}, "watch": {"poll_s": 3600}, "challenger": {"shadow": True}}, "test"
    )
    publish()
    asked, reached, over, stop, tried = threading.Semaphore(0), *(threading.Event() for _ in range(4))
    ask = registry.champion
    registry.champion = lambda: (asked.release(), ask())[1]

    def hold(path):
        if path == "/models" and server.default and not over.is_set():
            reached.set()  # the last thing in the round: what is not needed any more, is deleted
            over.wait()

    server.before = hold

    def say(line):
        if line.startswith("challenger reuse_v2 is tried"):
            tried.set()

    watch = Watch(registry, BundleDir(tmp_path / "b", "reuse"), Fleet([server.endpoint], 0), config, "0123456789abcdef", say)
    thread = threading.Thread(target=watch.run, args=(stop, 3600.0, wake))
    thread.start()
    try:
        assert reached.wait(60)
        assert asked.acquire(timeout=60)
        publish()
        registry.aliases = {"champion": 1, "challenger": 2}
        wake.set()
        assert asked.acquire(timeout=60), "it looks where the champion is"
        over.set()
        assert tried.wait(60), "the next round is not in an hour"
    finally:
        over.set()
        stop.set()
        wake.set()
        thread.join(60)
    assert not thread.is_alive()


def test_a_secret_that_is_none(tmp_path):
    with pytest.raises(webhook.WebhookError, match="webhook_secret_file is empty"):
        webhook.read_secret("")
    with pytest.raises(webhook.WebhookError, match="cannot be read"):
        webhook.read_secret(str(tmp_path / "none"))
    (tmp_path / "short").write_text("short\n")
    with pytest.raises(webhook.WebhookError, match="at least 16 characters, has 5"):
        webhook.read_secret(str(tmp_path / "short"))


def test_a_port_that_is_taken(url, wake):
    taken = int(url.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(webhook.WebhookError, match="cannot be listened at"), webhook.listen(settings(webhook_port=taken), SECRET, wake):
        pass


@pytest.mark.slow
def test_mlflow_wakes(mlflow_uri, url, wake):
    """The real server, registered with twice, wakes at a moved alias; one that takes no webhook says why, and polling goes on."""
    registry = Registry(mlflow_uri, "woken")
    assert webhook.register(registry, url, "an older secret, since changed") == ""
    assert webhook.register(registry, url, SECRET) == ""
    (registered,) = registry._client.list_webhooks()
    try:
        registry._client.create_registered_model("woken")
        run = registry._client.create_run("0")
        registry._client.create_model_version("woken", run.info.artifact_uri, run.info.run_id)
        wake.clear()
        # The server keeps its list of webhooks for a second: where it has just asked, this one is not called yet.
        deadline = time.monotonic() + 120
        registry.move("champion", 1)
        while not wake.wait(5):
            assert time.monotonic() < deadline, "nobody called"
            registry.move("champion", 1)
    finally:
        registry._client.delete_webhook(registered.webhook_id)
    assert "no webhook, the alias is followed by polling alone: MLflow at" in webhook.register(registry, "ftp://127.0.0.1/", SECRET)
