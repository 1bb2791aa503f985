// What every page needs of script, which is little: pages work without it, but for parts that look again by themselves.
"use strict";

// Trusted Types: text may become HTML, as the library for live parts needs it, and never a script. What becomes HTML is
// always a page of ours, in which the server has escaped every text of others.
if (window.trustedTypes && trustedTypes.createPolicy) {
  trustedTypes.createPolicy("default", { createHTML: (text) => text });
}

(() => {
  const sayEvery = 10000;
  let failures = 0;
  let said = "";
  let saidAt = 0;

  const part = (event) => event.detail && event.detail.ctx && event.detail.ctx.sourceElement;
  const clock = () => new Date().toISOString().slice(11, 19);

  // say tells a reader that something changed, not more often than every ten seconds.
  function say(text) {
    const place = document.getElementById("say");
    if (!place || !text || text === said || Date.now() - saidAt < sayEvery) return;
    if (said !== "") place.textContent = text;
    said = text;
    saidAt = Date.now();
  }

  function poll(text, link) {
    const place = document.getElementById("poll");
    if (!place) return;
    place.replaceChildren();
    place.hidden = text === "";
    place.classList.toggle("bad", failures >= 3);
    const p = document.createElement("p");
    p.textContent = text;
    if (link) {
      const a = document.createElement("a");
      a.href = link;
      a.textContent = "Sign in to go on.";
      p.append(" ", a);
    }
    place.append(p);
  }

  let good = clock();
  function failed() {
    failures++;
    if (failures >= 3) poll("The server isn't answering. This is as of " + good + " UTC; trying again.");
    else poll("As of " + good + " UTC, trying again.");
  }

  document.addEventListener("htmx:config:request", (event) => {
    const elt = part(event);
    if (elt && elt.dataset.etag) event.detail.ctx.request.headers["If-None-Match"] = elt.dataset.etag;
  });
  document.addEventListener("htmx:before:request", (event) => {
    if (document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:after:request", (event) => {
    const status = event.detail.ctx.response.status;
    if (status === 401) {
      const elt = part(event);
      for (const name of ["data-hx-trigger", "data-hx-get"]) if (elt) elt.removeAttribute(name);
      if (elt && window.htmx) htmx.process(elt, true);
      poll("You were signed out.", "/sign-in?next=" + encodeURIComponent(location.pathname + location.search));
      return;
    }
    if (status >= 400) {
      failed();
      return;
    }
    failures = 0;
    good = clock();
    poll("");
  });
  document.addEventListener("htmx:error", failed);
  document.addEventListener("htmx:after:swap", () => {
    const live = document.getElementById("live");
    if (!live) return;
    say(live.dataset.say);
    const credits = document.getElementById("credits"); // of the workspace, in the head
    if (credits && live.dataset.credits) credits.textContent = live.dataset.credits;
  });

  document.addEventListener("DOMContentLoaded", () => {
    const live = document.getElementById("live");
    if (live) say(live.dataset.say);
    const problem = document.getElementById("problem");
    if (problem) problem.focus();
    const made = document.getElementById("made"); // what is shown once
    if (made) made.focus();
    const form = document.querySelector("form[data-submit]"); // with nothing to fill in
    if (form && !problem) form.requestSubmit();
  });

  // What is to be taken elsewhere gets a button that copies it, and what is to be kept one that saves it.
  function offer(beside, label, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = label;
    button.addEventListener("click", () => act(button));
    beside.after(button);
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const text of document.querySelectorAll("[data-copy]")) {
      const whole = () => text.children.length > 1 ? [...text.children].map((line) => line.textContent).join("\n") : text.textContent;
      if (text.dataset.save) {
        offer(text, "Download", () => {
          const link = document.createElement("a");
          link.download = text.dataset.save;
          link.href = URL.createObjectURL(new Blob([whole() + "\n"], { type: "text/plain" }));
          link.click();
          URL.revokeObjectURL(link.href);
        });
      }
      if (navigator.clipboard) {
        offer(text, "Copy", (button) => navigator.clipboard.writeText(whole()).then(
          () => { button.textContent = "Copied"; }, () => { button.textContent = "Select the text and copy it"; }));
      }
    }
  });

  // A chart says the value of the bar that the pointer or the keyboard is at.
  function tell(chart, to) {
    const bars = [...chart.querySelectorAll("g")];
    const now = bars.findIndex((g) => g.classList.contains("at"));
    const next = Math.max(0, Math.min(bars.length - 1, to(now < 0 ? bars.length : now, bars)));
    bars.forEach((g, i) => g.classList.toggle("at", i === next));
    chart.querySelector("output").textContent = bars[next] ? bars[next].dataset.say : "";
  }
  const chartOf = (event) => event.target.closest && event.target.closest(".chart");
  document.addEventListener("focusin", (event) => { if (event.target === chartOf(event)) tell(event.target, (now) => now - 1); });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !chartOf(event)) return;
    event.preventDefault();
    tell(chartOf(event), (now) => now + step);
  });
  document.addEventListener("pointerover", (event) => {
    const bar = chartOf(event) && event.target.closest("g");
    if (bar) tell(chartOf(event), (now, bars) => bars.indexOf(bar));
  });

  // Browsers without invoker commands open dialogs this way.
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("[data-opens]");
    if (!button || "command" in HTMLButtonElement.prototype) return;
    const dialog = document.getElementById(button.dataset.opens);
    if (dialog) dialog.showModal();
  });
})();
