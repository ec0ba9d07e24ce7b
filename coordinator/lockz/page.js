// Brings the page up to date by putting its newest #live in the place of the old one. Without this script the page
// reloads as a whole.
(() => {
  "use strict";
  const byID = (id) => document.getElementById(id);
  const filter = byID("q"), pause = byID("pause"), status = byID("status");
  let timer = 0, asking = null, asked = false, seconds = Number(byID("live").dataset.refresh);
  let paused = seconds === 0;
  // What the address says, to go on with.
  const wish = new URL(location.href).searchParams.get("refresh"), before = paused || wish === null ? "" : wish;

  // The address says what is shown, so that it can be kept and sent to others.
  const change = (name, value) => {
    const address = new URL(location.href);
    if (value === "") {
      address.searchParams.delete(name);
    } else {
      address.searchParams.set(name, value);
    }
    history.replaceState(null, "", address);
  };

  const plan = () => {
    clearTimeout(timer);
    if (!paused && !document.hidden) {
      timer = setTimeout(() => refresh(false), (seconds || 2) * 1000);
    }
  };

  // Somebody who is copying a key does not want it to go away.
  const selecting = () => {
    const selection = getSelection();
    return selection && !selection.isCollapsed && byID("live").contains(selection.anchorNode);
  };

  const swap = (next) => {
    const old = byID("live"), focus = document.activeElement;
    for (const details of old.querySelectorAll("details[id]")) {
      const same = next.querySelector("#" + details.id);
      if (same) {
        same.open = details.open;
      }
    }
    let refocus = null;
    if (focus && old.contains(focus)) {
      const name = (e) => e.tagName + (e.getAttribute("href") || e.parentElement.id);
      const alike = (within) => [...within.querySelectorAll("a, summary")].filter((e) => name(e) === name(focus));
      refocus = alike(next)[alike(old).indexOf(focus)];
    }
    old.replaceWith(document.adoptNode(next));
    if (refocus) {
      refocus.focus({preventScroll: true});
    }
    seconds = Number(next.dataset.refresh);
  };

  const forget = () => {
    if (asking) {
      asking.abort();
      asking = null;
    }
  };

  // byHand: a person asked for it, and not the time.
  const refresh = async (byHand) => {
    clearTimeout(timer);
    forget(); // what was asked for before is of no interest any more
    asked = byHand;
    const mine = asking = new AbortController();
    const limit = setTimeout(() => mine.abort(), 15000);
    try {
      const answer = await fetch(location.href, {cache: "no-store", headers: {Accept: "text/html"}, signal: mine.signal});
      if (!answer.ok) {
        throw new Error("the answer is " + answer.status);
      }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = fresh.getElementById("live");
      if (!next) {
        throw new Error("the answer is another page");
      }
      if (mine === asking && !selecting()) {
        swap(next);
        document.title = fresh.title;
      }
      status.textContent = "";
    } catch (err) {
      if (mine === asking) {
        status.textContent = "Not up to date: " + err.message;
      }
    } finally {
      clearTimeout(limit);
      if (mine === asking) {
        asking = null;
        plan();
      }
    }
  };

  const show = () => {
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
  };

  pause.hidden = false;
  show();
  pause.addEventListener("click", () => {
    paused = !paused;
    change("refresh", paused ? "0" : before);
    show();
    if (!paused) {
      refresh(false);
      return;
    }
    clearTimeout(timer);
    if (!asked) {
      forget(); // what is seen now is to stay
    }
  });
  filter.form.addEventListener("submit", (event) => {
    event.preventDefault();
    change("q", filter.value);
    refresh(true);
  });
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { change("q", filter.value); refresh(true); }, 250);
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
    } else if (!paused) {
      refresh(false);
    }
  });
  plan();
})();
