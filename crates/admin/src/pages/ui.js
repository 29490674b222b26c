// Additions to pages that work without scripts: numbers are updated in place, and charts show the values under the pointer.
"use strict";

(() => {
  const PERIOD_MS = 5000;
  const live = document.querySelector("nav .live");
  const button = live.querySelector("button");
  let paused = false;
  let busy = false;
  let timer = 0;

  // --- Updates: the page is fetched again and the differences are applied element by element, so that nothing flickers,
  // --- scrolls back or discards text that is being typed.

  function same(from, to) {
    return from.nodeName === to.nodeName && from.getAttribute?.("class") === to.getAttribute?.("class");
  }

  function renewAttributes(from, to) {
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }

  function renew(from, to) {
    if (from.nodeType === Node.TEXT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) return;
    // A form that is being filled in is not replaced.
    if (from.nodeName === "FORM" && from.contains(document.activeElement)) return;
    renewAttributes(from, to);
    // A child that was added or removed (for example a warning) must not make those after it look changed.
    let next = from.firstChild;
    for (const child of [...to.childNodes]) {
      let found = next;
      for (let ahead = 0; found && !same(found, child) && ahead < 3; ahead += 1) found = found.nextSibling;
      if (!found || !same(found, child)) {
        from.insertBefore(child, next);
        continue;
      }
      while (next !== found) {
        const gone = next;
        next = next.nextSibling;
        gone.remove();
      }
      next = found.nextSibling;
      renew(found, child);
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      gone.remove();
    }
  }

  async function refresh() {
    if (busy || paused || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      // The login is over: the page to log in is shown as such.
      if (answer.redirected) {
        location.reload();
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = page.querySelector("main");
      if (main && !paused) {
        const here = document.querySelector("main");
        if (answer.ok || here.querySelector("[role=alert].bad")) renew(here, main);
        show(answer.ok ? "live" : "stale", answer.ok ? "live" : "no answer, retrying");
        hover.again();
      }
    } catch (error) {
      show("stale", "this node does not answer");
    } finally {
      busy = false;
    }
  }

  function show(state, text) {
    live.className = `live ${paused ? "paused" : state}`;
    button.textContent = paused ? "paused" : text;
    button.title = paused ? "Update every 5 s" : "Stop updating";
  }

  function schedule() {
    clearInterval(timer);
    if (!document.hidden && !paused) timer = setInterval(refresh, PERIOD_MS);
  }

  button.addEventListener("click", () => {
    paused = !paused;
    show("live", "live");
    schedule();
    refresh();
  });
  document.addEventListener("visibilitychange", () => {
    schedule();
    refresh();
  });

  // --- Charts: a line and a box follow the pointer.

  const units = {
    "": (value) => digits(value),
    "/s": (value) => `${digits(value)}/s`,
    B: (value) => bytes(value),
    "B/s": (value) => `${bytes(value)}/s`,
    s: (value) => seconds(value),
  };

  function digits(value) {
    if (Math.abs(value) < 0.005) return "0";
    return value.toLocaleString("en", { maximumFractionDigits: value < 1 ? 2 : value < 10 ? 1 : 0 });
  }

  function bytes(value) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    while (value >= 1024 && at + 1 < names.length) [value, at] = [value / 1024, at + 1];
    return `${value.toFixed(at ? 1 : 0)} ${names[at]}`;
  }

  function seconds(value) {
    if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
    if (value < 1) return `${(value * 1e3).toPrecision(3)} ms`;
    return `${value.toFixed(2)} s`;
  }

  const hover = {
    box: document.createElement("div"),
    line: document.createElement("div"),
    at: null,

    begin() {
      this.box.className = "tip";
      this.line.className = "crosshair";
      this.hide();
      document.body.append(this.line, this.box);
      const over = (event) => {
        const plot = event.target.closest && event.target.closest("figure.chart .plot");
        if (!plot) return this.hide();
        this.at = { plot, x: event.clientX };
        this.show();
      };
      document.addEventListener("pointermove", over);
      document.addEventListener("pointerdown", over);
      document.addEventListener("scroll", () => this.hide(), { capture: true, passive: true });
      document.addEventListener("pointerleave", () => this.hide());
    },

    again() {
      if (this.at && this.at.plot.isConnected) this.show();
      else this.hide();
    },

    hide() {
      this.at = null;
      this.box.hidden = this.line.hidden = true;
    },

    show() {
      const { plot, x } = this.at;
      const chart = plot.parentElement;
      const area = plot.querySelector("svg").getBoundingClientRect();
      const points = plot.querySelector("svg").viewBox.baseVal.width;
      const index = Math.max(0, Math.min(points, Math.round(((x - area.left) / area.width) * points)));
      const unit = units[chart.dataset.unit];
      const rows = [...plot.querySelectorAll("path.line")].map((line) => {
        const value = line.dataset.values.split(",")[index - Number(line.dataset.offset)];
        const row = document.createElement("div");
        row.className = `key ${line.classList[1]}`;
        row.append(`${line.dataset.name} `, Object.assign(document.createElement("b"), { textContent: value ? unit(Number(value)) : "–" }));
        return row;
      });
      const seconds = Number(chart.dataset.end) - (points - index) * Number(chart.dataset.step);
      const time = Object.assign(document.createElement("time"), { textContent: new Date(seconds * 1000).toLocaleTimeString() });
      this.box.replaceChildren(time, ...rows);
      this.box.hidden = this.line.hidden = false;
      const left = area.left + (index / points) * area.width;
      Object.assign(this.line.style, { left: `${left}px`, top: `${area.top}px`, height: `${area.height}px` });
      const width = this.box.offsetWidth;
      const beside = left + 12 + width > document.documentElement.clientWidth ? left - 12 - width : left + 12;
      Object.assign(this.box.style, { left: `${Math.max(4, beside)}px`, top: `${area.top}px` });
    },
  };

  hover.begin();
  // A choice in a form is submitted at once.
  document.addEventListener("change", (event) => {
    if (event.target.matches("form.filter select")) event.target.form.submit();
  });
  live.hidden = false;
  show("live", "live");
  schedule();
})();
