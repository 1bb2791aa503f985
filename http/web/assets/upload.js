// Uploads one file in pieces, and goes on where it was after a fault, a pause or a reload. What it remembers is in
// localStorage: the identity of the upload, the name and size of the file and the digests of what was sent. Never the
// upload URL, never what is in the file.
"use strict";

(() => {
  const root = document.getElementById("upload");
  if (!root) return;
  const base = root.dataset.base;
  const key = "rollcall.upload." + root.dataset.workspace;
  const pieceMost = 8 << 20;
  const pieceLeast = 256 << 10;
  const waitFirst = 500;
  const waitMost = 30000;
  const $ = (id) => document.getElementById(id);

  let file = null;      // what was chosen
  let memory = recall(); // of an upload that is not finished
  let busy = false;     // this page uploads
  let paused = false;
  let over = false;     // it is given up
  let durable = 0;
  let sent = 0;
  let request = null;   // the XMLHttpRequest that runs
  let wake = null;      // ends a wait early
  let speed = null;     // {at, bytes} some seconds ago

  // ---- words

  const thin = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const size = (n) => n >= 1e9 ? (n / 1e9).toFixed(1) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB"
    : n >= 1e3 ? (n / 1e3).toFixed(1) + " kB" : n + " bytes";
  function show(id, yes) { $(id).hidden = !yes; }
  function say(text) { $("state").textContent = text; }

  function numbers() {
    $("bar").max = file.size;
    $("bar").value = durable;
    let text = size(durable) + " stored, " + size(Math.max(sent, durable)) + " sent of " + size(file.size);
    const now = Date.now();
    if (!speed) speed = [];
    speed.push({ at: now, bytes: Math.max(sent, durable) });
    while (speed.length > 2 && now - speed[0].at > 5000) speed.shift();
    const took = (now - speed[0].at) / 1000;
    const moved = speed[speed.length - 1].bytes - speed[0].bytes;
    if (took > 1 && moved > 0) {
      const left = Math.max(1, Math.ceil((file.size - durable) * took / moved));
      text += " · " + size(Math.round(moved / took)) + "/s · about " + (left > 120 ? Math.ceil(left / 60) + " min" : left + " s");
    }
    $("numbers").textContent = text;
  }

  // ---- memory

  function recall() {
    try {
      const m = JSON.parse(localStorage.getItem(key));
      if (m && typeof m.identity === "string" && Array.isArray(m.pieces) && m.size > 0) return m;
    } catch { /* nothing to go on with */ }
    return null;
  }
  function remember() { try { localStorage.setItem(key, JSON.stringify(memory)); } catch { /* then a reload begins anew */ } }
  function forget() { memory = null; try { localStorage.removeItem(key); } catch { /* nothing was kept */ } }

  async function digest(from, to) {
    const sum = await crypto.subtle.digest("SHA-256", await file.slice(from, to).arrayBuffer());
    return Array.from(new Uint8Array(sum), (b) => b.toString(16).padStart(2, "0")).join("");
  }

  // same says whether the chosen file is the one whose pieces were sent.
  async function same() {
    if (file.size !== memory.size) return false;
    for (const p of memory.pieces) {
      if (p.from < durable && await digest(p.from, p.to) !== p.sum) return false;
    }
    return true;
  }

  // ---- waiting

  function wait(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => { clearTimeout(timer); resolve(); };
    });
  }
  addEventListener("online", () => { if (wake) wake(); });

  class Ended extends Error {}          // nothing more can be done; the message says why
  class Fault extends Error {           // try again after a while
    constructor(message, after) { super(message); this.after = after; }
  }
  class Lapsed extends Fault {}         // whether this user may still upload is to be asked again
  const retryAfter = (text) => { const n = Number(text); return n > 0 ? n * 1000 : 0; };

  // ---- the service

  async function ask(method, path, headers) {
    let answer;
    try {
      answer = await fetch(path, { method, headers, credentials: "same-origin", redirect: "error" });
    } catch {
      throw new Fault("No connection");
    }
    if (answer.status === 403) throw new Ended("Your role doesn't allow uploads here any more. Ask an owner of the workspace.");
    if (answer.status === 401) throw new Ended("You were signed out. Sign in, then choose the file again to go on.");
    let body = null;
    try { body = await answer.json(); } catch { /* a page */ }
    if (answer.ok && body) return body;
    let text = body && body.issue ? body.issue.message : "The server answered " + answer.status + ".";
    if (body && body.issue && body.issue.code === "invalid_filename") {
      text = "The name of this file has characters that we can't store, such as marks that change the direction of text. Rename the file, then choose it again.";
    }
    if (answer.status === 429 || answer.status >= 500 || body && body.issue && body.issue.code === "request_in_progress") {
      throw new Fault(text, retryAfter(answer.headers.get("Retry-After")));
    }
    const ended = new Ended(text);
    ended.refused = true;
    throw ended;
  }

  function create() {
    return ask("POST", base + "/verifications", {
      "Idempotency-Key": memory.identity,
      "X-Upload-Content-Length": String(memory.size),
      "X-Upload-Filename": encodeURIComponent(memory.name),
    });
  }

  // put sends a range, or with none asks how far the upload is. It gives what is stored, the whole size at the end.
  function put(url, from, to) {
    return new Promise((resolve, reject) => {
      const x = request = new XMLHttpRequest();
      x.open("PUT", url);
      x.timeout = 120000;
      const asks = from === undefined;
      x.setRequestHeader("Content-Type", "text/csv");
      x.setRequestHeader("Content-Range", asks ? "bytes */" + memory.size : "bytes " + from + "-" + (to - 1) + "/" + memory.size);
      if (!asks) x.upload.onprogress = (e) => { sent = from + e.loaded; x.timeout = 0; numbers(); };
      x.onerror = x.ontimeout = () => reject(new Fault("Connection lost"));
      x.onabort = () => reject(new Fault("Paused"));
      x.onload = () => {
        if (x.status === 200 || x.status === 201) return resolve(memory.size);
        if (x.status === 308) {
          const range = /^bytes=0-(\d+)$/.exec(x.getResponseHeader("Range") || "");
          return resolve(range ? Number(range[1]) + 1 : 0);
        }
        if (x.status === 404 || x.status === 410) {
          const ended = new Ended("This upload has ended: it expired or was cancelled. Choose the file again to start over.");
          ended.refused = true;
          return reject(ended);
        }
        reject(x.status === 403 ? new Lapsed("You may not upload any more") : new Fault("The storage answered " + x.status, retryAfter(x.getResponseHeader("Retry-After"))));
      };
      x.send(asks ? null : file.slice(from, to));
    });
  }

  // ---- the upload

  async function upload() {
    let again = waitFirst;
    let piece = pieceMost;
    let faults = 0;
    let url = null;
    let checked = memory.pieces.length === 0;
    let query = true; // the storage, how far it is
    while (!over) {
      if (paused) { await wait(3600000); query = true; continue; }
      try {
        if (!url) {
          const made = await create();
          memory.verification = made.id;
          remember();
          $("cancel-form").action = base + "/verifications/" + made.id + "/cancel";
          if (!made.upload) return finished(made.id);
          url = made.upload.url;
        }
        if (query) {
          const stored = await put(url);
          if (stored > durable) faults = 0;
          durable = sent = stored;
          query = false;
          numbers();
        }
        if (durable >= memory.size) return finished(memory.verification);
        if (!checked) {
          say("Comparing the file with what is stored.");
          if (!await same()) throw new Ended("This is another file, or it was changed. Choose the one that was uploaded, or forget that upload.");
          checked = true;
        }
        const to = Math.min(memory.size, (Math.floor(durable / piece) + 1) * piece);
        const known = memory.pieces.filter((p) => p.to <= durable);
        known.push({ from: durable, to, sum: await digest(durable, to) });
        memory.pieces = known.concat(memory.pieces.filter((p) => p.to > durable && p.from < durable));
        remember();
        say("");
        const before = durable;
        durable = await put(url, durable, to);
        if (durable > before) { faults = 0; again = waitFirst; }
        numbers();
        if (durable >= memory.size) return finished(memory.verification);
      } catch (e) {
        if (over) return;
        if (!(e instanceof Fault)) throw e;
        if (paused) continue;
        if (e instanceof Lapsed) url = null;
        query = true;
        if (++faults >= 2 && piece > pieceLeast) { piece = Math.max(pieceLeast, piece / 2); faults = 0; }
        const ms = e.after || again;
        again = Math.min(waitMost, again * 2);
        speed = null; // it says nothing while nothing moves
        numbers();
        say(e.message + " at " + size(durable) + ". Trying again in " + Math.ceil(ms / 1000) + " s, from the last stored byte on.");
        await wait(ms);
      }
    }
  }

  function finished(id) {
    busy = false;
    forget();
    say("The whole file is stored. Checking starts by itself.");
    location.assign(base + "/verifications/" + id);
  }

  async function run() {
    if (busy || !file) return;
    if (memory && (memory.name !== file.name || memory.size !== file.size)) {
      say("This is another file than " + memory.name + ", which is unfinished. Choose that one, or forget that upload.");
      return;
    }
    if (!memory) {
      memory = { identity: crypto.randomUUID(), name: file.name, size: file.size, pieces: [] };
      remember();
    }
    busy = true;
    over = paused = false;
    durable = sent = 0;
    speed = null;
    for (const id of ["starter", "choose", "found", "unfinished"]) show(id, false);
    show("running", true);
    $("name").textContent = file.name;
    $("size").textContent = size(file.size);
    numbers();
    const work = async () => {
      try {
        await upload();
      } catch (e) {
        if (e.refused) forget();
        stopped(e instanceof Ended ? e.message : "The upload stopped: " + e.message + ". Choose the file again to go on.");
      }
    };
    if (!navigator.locks) return work();
    await navigator.locks.request(key, { ifAvailable: true }, (lock) => {
      if (lock) return work();
      stopped("Another tab is uploading to this workspace. Continue there, or close it and choose the file again.");
    });
  }

  function stopped(text) {
    busy = false;
    file = null;
    show("running", false);
    show("choose", true);
    $("file").value = "";
    showUnfinished();
    say(text);
    $("file").focus();
  }

  // ---- what can be seen of a file before it is sent. The server decides; what it would surely refuse is not sent.

  // look says what kind of file it is, and whether the server would refuse it for that.
  async function look(f) {
    if (f.size === 0) return { hints: ["The file is empty."], refused: true };
    if (f.size > Number(root.dataset.max)) return { hints: ["The file is larger than " + size(Number(root.dataset.max)) + "."], refused: true };
    const bytes = new Uint8Array(await f.slice(0, 3).arrayBuffer());
    if (bytes[0] === 0xff && bytes[1] === 0xfe || bytes[0] === 0xfe && bytes[1] === 0xff) {
      return { hints: ["The file is UTF-16. Save it as UTF-8."], refused: true };
    }
    if (bytes[0] === 0x50 && bytes[1] === 0x4b) return { hints: ["This looks like a workbook, not a CSV. Save it as CSV UTF-8."], refused: true };
    const mark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    return { hints: mark ? ["It begins with a byte order mark, which is fine."] : [], refused: false };
  }

  // check reads the rows as the server does. most is how many addresses there are at most.
  async function check(f) {
    const rows = new RowCheck();
    const decoder = new TextDecoder("utf-8", { fatal: true });
    const reader = f.stream().getReader();
    rows.most = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        const text = done ? decoder.decode() : decoder.decode(value, { stream: true });
        rows.most += text.split("\n").length - 1;
        rows.push(text);
        if (done || file !== f) break;
      }
      if (rows.rest !== "") rows.most++;
      rows.end();
    } catch (e) {
      if (!(e instanceof TypeError)) throw e;
      rows.found.push({ row: rows.row + 1, text: "This row, or one soon after it, is not UTF-8 text. Save the file as CSV in UTF-8 and upload it again." });
    }
    if (!rows.unsure) rows.most = rows.addresses;
    return rows;
  }

  async function choose(f) {
    if (busy || !f) return;
    file = f;
    say("");
    let { hints, refused } = await look(f);
    let poor = false;
    if (!refused) {
      const rows = await check(f);
      const has = Number(root.dataset.available);
      if (rows.heading) hints.push("The first row looks like a heading, so it's skipped.");
      hints = hints.concat(rows.found.map((bad) => (bad.row ? "Row " + thin(bad.row) + (bad.line ? ", “" + bad.line.slice(0, 80) + "”: " : ": ") : "") + bad.text));
      refused = rows.found.length > 0;
      poor = !refused && rows.most > has;
      if (!refused) hints.push("It needs at most " + thin(rows.most) + (rows.most === 1 ? " credit; " : " credits; ") + thin(has) + " are available.");
      if (poor) hints.push("If that isn't enough, the file waits for credits. It continues by itself once there are.");
    }
    if (file !== f) return;
    if (refused) hints.push("A file like this is refused, so nothing is sent. Correct it, then choose it again.");
    $("found").replaceChildren(...[f.name + ", " + size(f.size)].concat(hints).map((text) => {
      const p = document.createElement("p");
      p.textContent = text;
      return p;
    }));
    $("found").classList.toggle("bad", refused);
    $("found").classList.toggle("warn", poor);
    show("found", true);
    show("starter", !refused);
    $("start").textContent = memory ? "Continue the upload" : poor ? "Upload, then wait for credits" : "Upload and check";
    (refused ? $("file") : $("start")).focus();
  }

  function showUnfinished() {
    show("unfinished", memory !== null);
    if (memory) {
      $("unfinished").querySelector("p").textContent = memory.name + " (" + size(memory.size) +
        ") is not whole yet. Choose it again to go on where it stopped.";
    }
  }

  // unfinished asks whether what is remembered still can go on.
  async function unfinished() {
    showUnfinished();
    if (!memory || !memory.verification) return;
    try {
      const now = await ask("GET", base + "/verifications/" + memory.verification + "/upload", {});
      if (!now.upload) { forget(); showUnfinished(); }
    } catch (e) {
      if (e.refused) { forget(); showUnfinished(); }
    }
  }

  $("file").addEventListener("change", () => choose($("file").files[0]));
  $("start").addEventListener("click", run);
  $("forget").addEventListener("click", () => { forget(); showUnfinished(); say("Forgotten. The bytes already sent are erased when the upload expires."); });
  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").textContent = paused ? "Resume" : "Pause";
    say(paused ? "Paused. What is stored stays for a day." : "");
    if (paused && request) request.abort();
    if (wake) wake();
  });
  $("stop").addEventListener("click", () => $("sure").showModal());
  $("cancel-form").addEventListener("submit", () => {
    over = true;
    busy = false;
    forget();
    if (request) request.abort();
  });
  addEventListener("beforeunload", (e) => { if (busy && durable < memory.size) e.preventDefault(); });

  // ---- a file that is dropped anywhere on the page. On the list of verifications the part that uploads is not shown before.

  const dragsFiles = (e) => e.dataTransfer && Array.from(e.dataTransfer.types).includes("Files");
  function showTarget(yes) {
    show("dropping", yes && !busy);
    $("choose").classList.toggle("over", yes && !busy);
  }
  function dropped(files) {
    if (busy) return;
    if (root.hidden) {
      root.hidden = false;
      unfinished();
    }
    if (files.length === 1) return choose(files[0]);
    say("Drop one file at a time.");
    $("file").focus();
  }
  document.addEventListener("dragover", (e) => {
    if (!dragsFiles(e)) return;
    e.preventDefault();
    showTarget(true);
  });
  document.addEventListener("dragleave", (e) => { if (!e.relatedTarget) showTarget(false); });
  document.addEventListener("drop", (e) => {
    if (!dragsFiles(e)) return;
    e.preventDefault();
    showTarget(false);
    dropped(e.dataTransfer.files);
  });
  if (!root.hidden) unfinished();
})();
