import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const binary = process.env["LEASEHOLD_BINARY"];
const root = fileURLToPath(new URL("../..", import.meta.url));

async function free(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${port}`;
}

/** Runs the quickstart of the README against a member, in an empty directory. */
test("quickstart", { skip: !binary }, async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "leasehold-quickstart-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const [client, peer] = [await free(), `http://${await free()}`];
  const member = spawn(binary ?? "", [
    "serve", "--data-dir", join(dir, "data"), "--listen-client-urls", `http://${client}`,
    "--advertise-client-urls", `http://${client}`, "--listen-peer-urls", peer,
    "--initial-advertise-peer-urls", peer, "--initial-cluster", `default=${peer}`,
  ], { stdio: "ignore" });
  t.after(() => member.kill("SIGKILL"));

  mkdirSync(join(dir, "node_modules"));
  symlinkSync(root, join(dir, "node_modules", "leasehold"));
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```js\n(.*?)```/gs)].map((m) => m[1] ?? "");
  const program = blocks.join("\n");
  assert.equal(program.split("127.0.0.1:2379").length, 2);
  writeFileSync(join(dir, "quickstart.mjs"), program.replace("127.0.0.1:2379", client));
  const done = spawnSync(process.execPath, ["quickstart.mjs"], {
    cwd: dir, encoding: "utf8", timeout: 120_000,
  });
  assert.equal(done.status, 0, done.stderr);
  for (const line of [
    /^step 2 with token \d+$/m, /^written: true$/m, /^leader: 10\.0\.0\.7:8080$/m,
    /^members: \[ 'host-1' \]$/m, /^put config\/color $/m, /^delete config\/lamp revoked$/m,
    /^led with token \d+$/m,
  ]) {
    assert.match(done.stdout, line);
  }
});
