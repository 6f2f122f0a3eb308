"""What agents write is text: nothing of it runs, wherever it is shown; and if it got in, the policy would stop it."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from tests.support import plans
from tests.support.dashboard import PROPOSAL, Person, created, propose, token_of
from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess

Keep = Callable[[Page, str], None]
CORPUS = [
    "<script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "<svg/onload=window.owned=1>",
    '"><script>window.owned=1</script>',
    "' autofocus onfocus=window.owned=1 x='",
    "</title><script>window.owned=1</script>",
    "</textarea><script>window.owned=1</script>",
    "</template><script>window.owned=1</script>",
    "<!--<script>window.owned=1//-->",
    "javascript:window.owned=1",
    "[x](javascript:window.owned=1)",
    "[x](data:text/html,<script>window.owned=1</script>)",
    "![x](javascript:window.owned=1)",
    "<a href=javascript:window.owned=1>x</a>",
    "<iframe srcdoc='<script>parent.owned=1</script>'>",
    "{{ 7*7 }}{% raw %}",
    "${window.owned=1}",
    "&lt;script&gt;window.owned=1&lt;/script&gt;",
    "<math><mtext><style><img src=x onerror=window.owned=1></style>",
    "<form action=//evil.invalid><button>x",
    "<base href=//evil.invalid/>",
    "<meta http-equiv=refresh content='0;url=//evil.invalid'>",
    "<link rel=stylesheet href=//evil.invalid/x.css>",
]
EVERYTHING = " ".join(CORPUS)


def attacked(agent: Mcp) -> str:
    """A review with the corpus in every field, path, hunk header and name there is."""
    name = "<script>window.owned=1</script>\"'><img src=x onerror=window.owned=1>"
    path = "x<script>window.owned=1<\u2044script> 'onclick=window.owned=1' <img src=x onerror=window.owned=1>.py"
    lines = "".join(f"+{text}\n" for text in CORPUS)
    odd = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    diff = (
        token_of(16).replace("@@ class SessionStore:", f"@@ {EVERYTHING}")
        + (f"{odd}@@ -0,0 +1,{len(CORPUS)} @@ {EVERYTHING}\n{lines}")
        + plans.created("\n\n".join(CORPUS) + "\n" + "\n".join(CORPUS), "plan.md")
    )
    proposal = {
        **PROPOSAL, "agent_type": name, "phase": name, "plan": name, "task": name, "project": "shop",
        "proposer_id": f"p{name}", "intent": EVERYTHING, "description": "\n\n".join(CORPUS), "diff": diff,
    }  # fmt: skip
    review_id = agent("create_review", **proposal)["review_id"]
    claim = agent("claim_review", review_id=review_id, reviewer_id=f"r{name}")
    agent(
        "add_message", review_id=review_id, sender_role="reviewer", sender_id=f"r{name}", body="\n\n".join(CORPUS),
        path=path, line=1, metadata={name: name},
    )  # fmt: skip
    agent("add_message", review_id=review_id, sender_role="proposer", sender_id=f"s{name}", body=EVERYTHING)
    finding = {
        "path": path, "line_start": 2, "severity": "high", "title": EVERYTHING[:900], "body": "\n\n".join(CORPUS),
        "suggestion": EVERYTHING,
    }  # fmt: skip
    agent(
        "submit_verdict", review_id=review_id, verdict="changes_requested", reason="\n\n".join(CORPUS),
        claim_generation=claim["claim_generation"], findings=[finding, {**finding, "path": None, "title": name}],
        counter_patch=diff,
    )  # fmt: skip
    first = agent("get_discussion", review_id=review_id)["findings"][0]["finding_id"]
    agent("resolve_finding", review_id=review_id, finding_id=first, disposition="deferred", note=EVERYTHING)
    agent("create_review", **{**proposal, "review_id": review_id, "diff": diff.replace("(16)", "(17)")})
    return review_id


def test_nothing_that_agents_write_runs(
    shop: BrokerProcess, open_context: Callable[..., BrowserContext], keep: Keep
) -> None:
    agent = shop.client()
    review_id = attacked(agent)
    context = open_context()
    elsewhere: list[str] = []
    context.on("request", lambda asked: elsewhere.append(asked.url) if f":{shop.port}/" not in asked.url else None)
    person = Person(context.new_page(), shop.port)
    patch = agent("get_discussion", review_id=review_id)["counter_patches"][0]["counter_patch_id"]
    places = [
        "/", "/reviews", "/reviews?q=%3Cscript%3Ewindow.owned=1%3C/script%3E&project=%22%3E%3Cimg%20src%3Dx%3E",
        f"/r/{review_id}", f"/r/{review_id}?view=split", f"/r/{review_id}?rev=2&since=1",
        f"/r/{review_id}?patch={patch}",
        f"/r/{review_id}?as=rendered", f"/r/{review_id}?at=f1n1",
        f"/r/{review_id}?at=%22%3E%3Cscript%3Ewindow.owned=1%3C/script%3E",
        "/audit", "/insights", "/pool", "/r/%3Cscript%3Ewindow.owned=1%3C%2Fscript%3E",
    ]  # fmt: skip
    for place in places:
        page = person.go(place)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("window.owned") is None, place
        assert page.locator("main script, main iframe, main img, main link, main base, main meta").count() == 0, place
        strange = page.evaluate(
            "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames().filter(n => n.startsWith('on')))"
        )
        assert strange == [], place
        assert page.locator("a[href^='javascript:' i], a[href^='data:' i]").count() == 0, place
    page = person.go(f"/r/{review_id}")
    expect(page.locator("h1")).to_contain_text("<script>window.owned=1</script>")
    page.get_by_role("button", name="Open all").click()
    page.keyboard.press("/")
    page.keyboard.type("x")
    expect(page.locator("#commands li").first).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("window.owned") is None
    assert elsewhere == []
    keep(page, "hostile")


def test_news_that_arrives_live_is_text_too(shop: BrokerProcess, person: Person) -> None:
    agent = shop.client()
    review_id = propose(agent)
    agent("claim_review", review_id=review_id, reviewer_id="codex-r1")
    page = person.go(f"/r/{review_id}")
    expect(page.locator("#pulse.on")).to_be_attached()
    for place in ({"path": "shop/sessions.py", "line": 13}, {}):
        agent("add_message", review_id=review_id, sender_role="reviewer", body=EVERYTHING + "\n\n*news*", **place)
    expect(page.locator(".thread em")).to_have_count(2)
    assert page.evaluate("window.owned") is None
    assert page.locator("main script, main img").count() == 0


def test_the_policy_blocks_a_canary(shop: BrokerProcess, person: Person) -> None:
    """If something did get in, it would not run, and nothing would leave."""
    page = person.go("/")
    blocked = page.evaluate(
        """async () => {
        const seen = [];
        document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
        const put = (html) => { const d = document.createElement("div"); d.innerHTML = html; document.body.append(d); };
        put("<img src=x onerror='window.owned=1'>");
        put("<p style='color:red'>x</p>");
        put("<img src='http://evil.invalid/x.png'>");
        put("<iframe src='http://evil.invalid/'></iframe>");
        const script = document.createElement("script");
        script.textContent = "window.owned=1";
        document.body.append(script);
        await fetch("http://evil.invalid/").catch(() => 0);
        await new Promise((done) => setTimeout(done, 300));
        return seen;
    }"""
    )
    assert page.evaluate("window.owned") is None
    assert {"script-src-attr", "script-src-elem", "style-src-attr", "img-src", "frame-src", "connect-src"} <= set(
        blocked
    )


def test_what_hides_from_the_eye_is_shown_and_warned_of(shop: BrokerProcess, person: Person, keep: Keep) -> None:
    """Bidi and invisible characters, links, names that mislead."""
    trojan = "if access != 'user\u202e \u2066// admin only\u2069 \u2066': pass"
    diff = (
        created("app.py", 1, text=trojan.replace("{", "{{").replace("}", "}}"))
        + created("admin\u200b.py", 1)
        + created("a/LICENSE", 1)
        + created("a/license", 1)
        + "diff --git a/way b/way\nnew file mode 120000\n--- /dev/null\n+++ b/way\n@@ -0,0 +1 @@\n+/etc/passwd\n"
        + "\\ No newline at end of file\n"
        + created(".github/workflows/x.yml", 1)
        + "diff --git a/hello.txt b/greetings.txt\nsimilarity index 100%\n"
        + "rename from hello.txt\nrename to greetings.txt\n"
    )
    review_id = propose(shop.client(), diff=diff)
    page = person.go(f"/r/{review_id}")
    line = page.locator("#f0n1")
    expect(line.locator(".hid")).to_have_text(["U+202E", "U+2066", "U+2069", "U+2066"])
    assert "\u202e" not in page.content()
    expect(page.locator("#f0 summary")).to_contain_text("characters that change the text direction")
    expect(page.locator("#f1 summary")).to_contain_text("its name has invisible characters")
    expect(page.locator("#f2 summary")).to_contain_text("differs only in case")
    expect(page.locator("#f4 summary")).to_contain_text("symbolic link")
    expect(page.locator("#f5 summary")).to_contain_text("decides what runs")
    expect(page.locator("#f6 summary")).to_contain_text("hello.txt → greetings.txt")
    expect(page.get_by_text("files hold something that is easy to miss")).to_be_visible()
    keep(page, "warnings")
