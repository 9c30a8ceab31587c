import { create } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { test } from "node:test";

import { loginRequest, loginToken, parseEndpoint } from "../connection.js";
import { LeaseholdError, errorOf, isEnd } from "../errors.js";
import { Numbers } from "../mux.js";
import type { KeyValue } from "../store.js";
import { compare, endOf, firstTicket, isTicket, ms } from "../store.js";
import { ErrorSchema, LeaseSchema, Reason } from "../v1/leases_pb.js";

const invalid = { code: "INVALID" } as const;

test("the end of a prefix", () => {
  const end = (key: string | Uint8Array): string =>
    Buffer.from(endOf({ key, prefix: true })).toString("hex");
  assert.equal(end("a/"), Buffer.from("a0").toString("hex"));
  assert.equal(end(Buffer.from([97, 255])), "62");
  assert.equal(end(""), "00");
  assert.equal(end(Buffer.from([255, 255])), "00");
  assert.equal(endOf({ key: "a" }).length, 0);
  assert.throws(() => endOf({ key: "a", end: "b", prefix: true }), invalid);
});

test("milliseconds are rounded up", () => {
  assert.deepEqual([ms(0), ms(1.2), ms(5)], [0n, 2n, 5n]);
});

function kv(key: string, lease: bigint, createRevision: bigint): KeyValue {
  return {
    key: Buffer.from(key), value: Buffer.alloc(0), createRevision, modRevision: createRevision,
    version: 1n, lease,
  };
}

test("tickets", () => {
  assert.ok(isTicket("m/", kv("m/1f", 31n, 2n)));
  assert.ok(isTicket("m/", kv("m/1f.2", 31n, 2n)));
  assert.ok(!isTicket("m/", kv("m/1f", 0n, 2n))); // not attached to a lease
  assert.ok(!isTicket("m/", kv("m/sub/1f", 31n, 2n)));
  assert.ok(!isTicket("m/", kv("m/", 31n, 2n)));
  const list = [kv("m/a", 10n, 7n), kv("m/b", 11n, 5n), kv("m/config", 0n, 1n)];
  assert.equal(firstTicket("m/", list), list[1]);
  assert.equal(firstTicket("m/", list.slice(2)), undefined);
});

test("endpoints", () => {
  assert.deepEqual(parseEndpoint(" host:1 ", false), { address: "host:1", secure: false });
  assert.deepEqual(parseEndpoint("host:1", true), { address: "host:1", secure: true });
  assert.deepEqual(parseEndpoint("http://host:1", true), { address: "host:1", secure: false });
  assert.deepEqual(parseEndpoint("https://host:1/", false), { address: "host:1", secure: true });
  assert.deepEqual(parseEndpoint("unix:/a/b", false), { address: "unix:/a/b", secure: false });
  for (const wrong of ["", "host", "ftp://host:1"]) {
    assert.throws(() => parseEndpoint(wrong, false), invalid);
  }
});

test("messages of a login", () => {
  assert.equal(loginRequest("app", "secret").toString("latin1"), "\n\x03app\x12\x06secret");
  const header = Buffer.from([10, 2, 8, 1]);
  assert.equal(loginToken(Buffer.concat([header, Buffer.from("\x12\x05tok.1")])), "tok.1");
  assert.equal(loginToken(header), "");
  assert.equal(loginRequest("u".repeat(200), "").subarray(1, 3).toString("hex"), "c801");
});

test("errors have the words of the member", () => {
  const holder = create(LeaseSchema, { id: 7n, owner: "me" });
  const e = errorOf(
    create(ErrorSchema, {
      reason: Reason.NAME_TAKEN, message: "taken", holder, metadata: { lease: "7" },
    }),
  );
  assert.equal(e.code, "NAME_TAKEN");
  assert.equal(e.message, "taken");
  assert.equal(e.holder?.owner, "me");
  assert.deepEqual(e.metadata, { lease: "7" });
  assert.ok(e instanceof LeaseholdError && !isEnd(e));
});

test("a reason of a later server says nothing of the outcome", () => {
  const e = errorOf(create(ErrorSchema, { reason: 127 as Reason }));
  assert.equal(e.code, "UNKNOWN_OUTCOME");
});

test("numbers are acknowledged in order", () => {
  const n = new Numbers(undefined);
  n.last = 3n;
  n.settle(2n);
  assert.equal(n.acknowledgedBelow, 1n);
  n.settle(1n);
  assert.equal(n.acknowledgedBelow, 3n);
});

test("missing compares with zero", () => {
  const c = compare.missing("a/", { prefix: true });
  assert.deepEqual(c.target, { case: "createRevision", value: 0n });
  assert.equal(Buffer.from(c.rangeEnd).toString(), "a0");
});
