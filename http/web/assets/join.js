// Puts the results of a verification beside the rows of the list that its addresses come from, as `rollcall verify --join`
// does. The list is read in this browser and sent nowhere.
"use strict";

(() => {
  const root = document.getElementById("join");
  if (!root) return;
  const own = document.getElementById("own");
  const say = (text) => { document.getElementById("joined").textContent = text; };
  const headings = ["result", "message", "role", "free", "disposable", "suggest", "operator", "checked_at"];

  class Unfit extends Error {} // the message says what to do

  // textOf reads a file, whatever it was saved in. plain is whether a spreadsheet would read it without a mark.
  async function textOf(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (bytes[0] === 0x50 && bytes[1] === 0x4b) throw new Unfit("This is a workbook. Save its sheet as CSV, or use rollcall verify --join.");
    const wide = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "";
    const marked = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    if (wide) return { text: new TextDecoder(wide).decode(bytes), plain: false };
    try {
      return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), plain: !marked };
    } catch {
      return { text: new TextDecoder("windows-1252").decode(bytes), plain: false };
    }
  }

  // commaOf finds what stands between cells: what four of five of the first lines have outside quotes.
  function commaOf(text) {
    const lines = text.slice(0, 65536).replace(/"[^"]*"/g, "").split(/[\r\n]+/).filter((l) => l.trim() !== "").slice(0, 50);
    return ["\t", ";", ",", "|"].find((c) => lines.filter((l) => l.includes(c)).length * 5 >= lines.length * 4) || ",";
  }

  // rowsOf cuts CSV into rows of cells, without those that are blank.
  function rowsOf(text, comma) {
    const cell = new RegExp(`("[^"]*(?:""[^"]*)*"|[^"\r\n\\${comma}][^\r\n\\${comma}]*|)(\\${comma}|\r?\n|\r|$)`, "y");
    const rows = [];
    let row = [];
    while (cell.lastIndex < text.length || row.length > 0) {
      const found = cell.exec(text);
      if (!found) throw new Unfit("Row " + (rows.length + 1) + " has a quote (\") that is not closed, or stands within a cell. Correct it, then choose the list again.");
      row.push(found[1].startsWith('"') ? found[1].slice(1, -1).replaceAll('""', '"') : found[1]);
      if (found[2] === comma) continue;
      if (row.some((c) => c.trim() !== "")) rows.push(row);
      row = [];
      if (cell.lastIndex >= text.length) break;
    }
    return rows;
  }

  const hosts = new Map(); // by domain, since to make one takes long

  // keyOf is alike for two spellings of one address.
  function keyOf(address) {
    const text = address.trim(), at = text.lastIndexOf("@"), domain = text.slice(at + 1);
    if (at < 0) return "";
    if (!hosts.has(domain)) {
      let host = domain.toLowerCase();
      try { host = new URL("http://" + domain).hostname; } catch { /* none that mail goes to */ }
      hosts.set(domain, host);
    }
    return text.slice(0, at + 1) + hosts.get(domain);
  }

  // resultsOf reads the results, by address: the cells that go beside a row.
  async function resultsOf(url) {
    const answer = await fetch(url, { credentials: "same-origin", redirect: "error" });
    if (!answer.ok) throw new Unfit("The results can't be read: the server answered " + answer.status + ". Load the page again, then choose the list again.");
    const results = new Map();
    for (const [email, result, message, at] of rowsOf(await answer.text(), ",").slice(1)) {
      const [, text, said] = /^(.*?)(?: \[([^\]]*)\])?$/s.exec(message);
      const flags = new Map((said || "").split(" ").map((word) => [word.split("=")[0], word.split("=")[1] || "yes"]));
      results.set(keyOf(email), [result, text, ...headings.slice(2, 7).map((name) => flags.get(name) || ""), at]);
    }
    return results;
  }

  // join writes the rows of a list with the results beside. The column of the addresses is the one that has most of them.
  function join(rows, results, comma) {
    const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
    const has = (row, i) => results.has(keyOf(row[i] || ""));
    const hits = Array.from({ length: width }, (_, i) => rows.filter((row) => has(row, i)).length);
    const count = Math.max(...hits), column = hits.indexOf(count);
    if (count === 0) throw new Unfit("This list has none of the addresses of this verification. Choose the list that they come from.");
    const first = rows[0].some((c) => c.includes("@")) ? Array.from({ length: width }, (_, i) => i === column ? "email" : "column " + (i + 1)) : rows.shift();
    while (first.length < width) first.push("column " + (first.length + 1));
    const line = (cells) => cells.map((c) => c.includes(comma) || /["\r\n]/.test(c) ? '"' + c.replaceAll('"', '""') + '"' : c).join(comma) + "\r\n";
    const parts = [line(first.concat(headings.map((name) => first.includes(name) ? "rollcall_" + name : name)))];
    for (const row of rows) {
      const own = row.concat(Array(width - row.length).fill(""));
      parts.push(line(own.concat(results.get(keyOf(own[column])) || Array(headings.length).fill(""))));
    }
    return { parts, count, rows: rows.length };
  }

  own.addEventListener("change", async () => {
    const file = own.files[0];
    if (!file) return;
    say("Reading the list and the results.");
    try {
      const { text, plain } = await textOf(file);
      const sep = /^sep=(.)\r?\n/i.exec(text), comma = sep ? sep[1] : commaOf(text);
      const rows = rowsOf(sep ? text.slice(sep[0].length) : text, comma);
      if (rows.length === 0) throw new Unfit("The list is empty.");
      const done = join(rows, await resultsOf(root.dataset.results), comma);
      const link = document.createElement("a");
      link.download = file.name.replace(/\.[^.]*$/, "") + "-results.csv";
      link.href = URL.createObjectURL(new Blob((plain ? [] : ["\ufeff"]).concat(done.parts), { type: "text/csv" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
      say(done.count + " of " + done.rows + (done.count === 1 ? " rows has a result. " : " rows have a result. ") + link.download + " is saved.");
    } catch (e) {
      say(e instanceof Unfit ? e.message : "This didn't work: " + e.message + ". Choose the list again.");
    }
    own.value = "";
  });
})();
