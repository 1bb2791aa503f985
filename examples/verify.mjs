// Verify a CSV file of addresses and print the results. Only what Node 20 has.
//
//   ROLLCALL_API=https://verify.example.com ROLLCALL_KEY=rc_... node verify.mjs contacts.csv > results.csv
//
// Run it again after any failure: the bytes of the file are its identity, so nothing is charged twice.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

if (process.argv.length !== 3 || !process.env.ROLLCALL_API || !process.env.ROLLCALL_KEY) {
  console.error("usage: ROLLCALL_API=https://verify.example.com ROLLCALL_KEY=rc_... node verify.mjs contacts.csv");
  process.exit(1);
}
const api = process.env.ROLLCALL_API.replace(/\/$/, "");
const key = { "X-API-Key": process.env.ROLLCALL_KEY };

// Sends one request; again while the service is away or says "later" (429, 503).
async function ask(method, url, headers, body) {
  for (let attempt = 0; attempt < 60; attempt++) {
    let wait = Math.min(0.25 * 2 ** attempt, 16);
    try {
      const answer = await fetch(url, { method, headers, body, redirect: "manual" });
      if (answer.ok || answer.status === 308) return answer; // 308, of an upload: bytes are missing
      if (answer.status !== 429 && answer.status !== 503) {
        const { issue } = await answer.json();
        throw Object.assign(new Error(`${issue.code}: ${issue.message}`), { refused: true });
      }
      wait = Number(answer.headers.get("Retry-After") ?? wait);
    } catch (error) {
      if (error.refused) throw error;
      if (method === "PUT") return { status: 308, headers: new Headers() }; // what arrived is not known: the caller asks
    }
    await sleep(wait * 1000);
  }
  throw new Error("the service does not answer");
}

// Sends the bytes, and after a cut connection only those that are missing. The URL is the secret: no key is sent.
async function upload(url, data) {
  for (let start = 0; ; ) {
    const range = `bytes ${start}-${data.length - 1}/${data.length}`;
    let answer = await ask("PUT", url, { "Content-Type": "text/csv", "Content-Range": range }, data.subarray(start));
    if (answer.status === 308) {
      await sleep(250);
      answer = await ask("PUT", url, { "Content-Range": `bytes */${data.length}` }, new Uint8Array());
    }
    if (answer.status !== 308) return;
    const stored = answer.headers.get("Range");
    start = stored ? Number(stored.replace("bytes=0-", "")) + 1 : 0;
  }
}

const name = process.argv[2];
const data = await readFile(name);
const hex = createHash("sha256").update(data).digest("hex");
const created = await (await ask("POST", `${api}/v1/verifications`, {
  ...key,
  "Idempotency-Key": `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`,
  "X-Upload-Content-Length": String(data.length),
  "X-Upload-Filename": encodeURIComponent(basename(name)),
})).json();
if (created.upload) await upload(created.upload.url, data);
for (;;) {
  const answer = await ask("GET", `${api}/v1/verifications/${created.id}`, key);
  const detail = await answer.json();
  if (detail.status === "failed") throw new Error(`${detail.issue.code}: ${detail.issue.message}`);
  if (["completed", "completed_with_errors", "cancelled"].includes(detail.status)) break;
  await sleep(Number(answer.headers.get("Retry-After") ?? 2) * 1000);
}
process.stdout.write(await (await ask("GET", `${api}/v1/verifications/${created.id}/results`, key)).text());
