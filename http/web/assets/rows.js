// Says of a file, before a byte is sent, in which rows the server would refuse it and with which words. It mirrors package
// intake and smtp.ParseAddress for ASCII; what only the server can decide (addresses beyond ASCII, quoted ones) it lets pass.
"use strict";

// RowCheck takes the text of a file in pieces, without its byte order mark. found has the first ten bad rows.
class RowCheck {
  constructor() {
    this.found = [];
    this.row = 0;       // that was looked at last, the first being 1
    this.addresses = 0; // rows without a heading
    this.heading = false;
    this.ended = false;
    this.unsure = false; // where the next row begins is for the server to say
    this.rest = "";
  }

  push(text) {
    if (this.unsure) return;
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    for (const line of lines) this.line(line, true);
  }

  end() {
    if (!this.unsure && this.rest !== "") this.line(this.rest, false);
    if (!this.unsure && this.addresses === 0 && this.found.length === 0) {
      this.found.push({ row: 0, text: "The file has no addresses. Put one address in each row and upload the file again." });
    }
  }

  line(line, whole) {
    if (this.unsure) return;
    this.row++;
    this.ended = this.ended || whole; // by LF, somewhere
    if (whole && line.endsWith("\r")) line = line.slice(0, -1);
    const text = this.fault(line);
    if (this.unsure) return;
    if (text === "heading") {
      this.heading = true;
      return;
    }
    this.addresses++;
    if (text && this.found.length < 10) this.found.push({ row: this.row, text, line });
  }

  // fault says what is wrong with a row; "": nothing that can be seen here.
  fault(line) {
    if (RowCheck.plain.test(line) && line.length < 200 && line.indexOf("@") <= 64) return ""; // nearly always
    if (line.startsWith('"')) {
      if (!/^"(?:[^"]|"")*"$/.test(line)) { // it may go on in the next line
        this.unsure = true;
        return "";
      }
      line = line.slice(1, -1).replaceAll('""', '"');
    } else {
      const at = line.search(/[,"\r\0]/);
      if (at > 1024 || at < 0 && line.length > 1024) {
        return "This row is over 1,024 bytes, or a quote in it is not closed. Correct it and upload the file again.";
      }
      if (at >= 0 && line[at] === ",") return "This row has more than one column. Keep the addresses only and upload the file again.";
      if (at >= 0 && line[at] === "\0") return "This row has a NUL character. Delete that character" + RowCheck.again;
      if (at >= 0 && line[at] === "\r") {
        return (this.row === 1 && !this.ended ? "The lines end in CR alone, as on old Macs." : "This row has a CR that ends no line.")
          + " Save the file with LF or CRLF line ends" + RowCheck.again;
      }
      if (at >= 0) {
        return 'This row has a quote (") within it, or text after the closing one. Write the address without quotes' + RowCheck.again;
      }
    }
    if (line.trim() === "") return "This row is blank. Delete it and upload the file again.";
    const cause = RowCheck.address(line);
    if (!cause) return "";
    return this.row === 1 ? "heading" : RowCheck.sentence(line, cause);
  }

  static again = " and upload the file again.";

  // sentence says what is wrong with a row that is no address, and what to do; "": only the server knows which words fit.
  static sentence(text, cause) {
    if ([...text].some((c) => c >= "\x80") || /xn--/i.test(text)) return "";
    const plain = text.trim(), found = RowCheck.addressesIn(text), control = text.match(RowCheck.control);
    const code = (c) => c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    const says = found.length > 1 ? "This row has more than one address. Give each its own row"
      : control ? `This row has an invisible character (U+${code(control[0])}). Delete that character`
      : plain.includes("\t") ? "This row has columns with tabs between. Keep the addresses only"
      : plain.includes(";") ? "This row has columns with semicolons between. Keep the addresses only"
      : /^mailto:./i.test(plain) ? "This row has mailto: before the address. Keep the address only"
      : /^<[^]*>$/.test(plain) ? "This row has angle brackets around the address. Take them away"
      : found.length === 1 && /[<(]/.test(plain) ? "This row has a name beside the address. Keep the address only"
      : /[ \t\n]/.test(text) && !text.includes("@") ? "This row has no @ sign. Correct or delete it"
      : /[ \t\n]/.test(text) ? "This row has a space in it or around it. Delete that space"
      : "This row has a malformed address: " + cause + ". Correct or delete it";
    return says + RowCheck.again;
  }

  static control = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/;

  // addressesIn gives what is an address between separators, without what people and programs put around it.
  static addressesIn(text) {
    const bare = (t) => {
      t = t.trim();
      if (/^mailto:./i.test(t)) t = t.slice(7).split("?")[0];
      if (t.startsWith('="')) t = t.slice(1);
      return t.replace(/^[<'" ]+/, "").replace(/[>'".,;: ]+$/, "");
    };
    const isAddress = (t) => RowCheck.address(t) === "";
    const clean = text.replaceAll(new RegExp(RowCheck.control, "g"), "");
    if (isAddress(bare(clean))) return [bare(clean)];
    return clean.split(/[\t\n\r,;|<>()]+/).flatMap((piece) => {
      const one = bare(piece), words = one.split(/[ /]+/).filter((w) => w !== "");
      return isAddress(one) ? [one] : words.every(isAddress) ? words : [];
    });
  }

  static plain = /^(?:[A-Za-z0-9+_-]+\.)*[A-Za-z0-9+_-]+@(?:[A-Za-z0-9]{1,63}\.)+[A-Za-z0-9]{1,63}$/;

  // address says what is wrong with an address; "": nothing, or only the server knows.
  static address(text) {
    const beyond = (c) => c >= "\x80";
    if (text[0] === '"') return "";
    let dot = true; // no dot may stand here
    for (let i = 0; i < Math.min(text.length, 65); i++) {
      const c = text[i];
      if (beyond(c)) return "";
      if (/[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~]/.test(c)) {
        dot = false;
      } else if (c === ".") {
        if (dot) return "a dot stands first, last or twice in a row before the @ sign";
        dot = true;
      } else if (c === "@") {
        if (i === 0) return "there is nothing before the @ sign";
        if (dot) return "a dot stands first, last or twice in a row before the @ sign";
        return RowCheck.domain(text.slice(i + 1)) || (text.length > 254 && ![...text].some(beyond) && !/xn--/i.test(text)
          ? "the address is over 254 octets" : "");
      } else if (c === " " || c === "\t") {
        return "there is a space in it or around it";
      } else if (c < " " || c === "\x7f") {
        return "there is an invisible or control character before the @ sign";
      } else {
        return "a character before the @ sign is not allowed there";
      }
    }
    return text.length > 64 ? "the part before the @ sign is over 64 octets" : "it has no @ sign";
  }

  static domain(text) {
    if ([...text].some((c) => c >= "\x80") || /(^|\.)xn--/i.test(text)) return "";
    if (text === "") return "there is nothing after the @ sign";
    const label = (l) => l === "" ? "a dot stands first, last or twice in a row in the domain"
      : l.length > 63 ? "a label of the domain is over 63 octets"
        : l.startsWith("-") || l.endsWith("-") ? "a label of the domain starts or ends with a hyphen" : "";
    let start = 0;
    for (let i = 0; i <= text.length; i++) {
      const c = text[i];
      if (i < text.length && /[A-Za-z0-9-]/.test(c)) continue;
      if (i < text.length && c !== ".") {
        return i === 0 && c === "[" ? "a network address in brackets is not accepted as a domain"
          : c === " " || c === "\t" ? "there is a space in it or around it" : "a character of the domain is not allowed there";
      }
      const wrong = label(text.slice(start, i));
      if (wrong) return wrong;
      start = i + 1;
    }
    return text.length > 253 ? "the domain is over 253 octets" : "";
  }
}
