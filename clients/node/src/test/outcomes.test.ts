import { create } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { test } from "node:test";

import { Connector } from "../connection.js";
import type { Call, Kind, Sender } from "../mux.js";
import { Link, LinkError, Mux } from "../mux.js";
import { Clock } from "../validity.js";
import { ErrorSchema, Reason } from "../v1/leases_pb.js";
import { PutRequestSchema, PutResponseSchema } from "../v1/store_pb.js";
import type { ClientMessage, Request, Response } from "../v1/stream_pb.js";
import { RequestSchema, ResponseSchema, SessionResponseSchema } from "../v1/stream_pb.js";

type Turn = Response | LinkError | undefined;

/** Answers requests in order. undefined means no answer, and the last answer is repeated. */
class FakeLink implements Sender {
  readonly sent: Request[] = [];

  constructor(
    private readonly turns: Turn[],
    private readonly opensSessions = true,
  ) {}

  send(c: Call): void {
    if (c.request.body.case === "session") {
      if (!this.opensSessions) return;
      const value = create(SessionResponseSchema, { session: { id: 1n } });
      c.answer(create(ResponseSchema, { body: { case: "session", value } }));
      return;
    }
    this.sent.push(c.request);
    const turn = this.turns.length > 1 ? this.turns.shift() : this.turns[0];
    if (turn instanceof LinkError) c.lost(turn);
    else if (turn) c.answer(turn);
  }

  forget(): boolean {
    return true;
  }
}

function muxOf(link: FakeLink): Mux {
  return new Mux(new Connector({ endpoints: [] } as never), new Clock(), link);
}

const body = { case: "put", value: create(PutRequestSchema) } as const;

async function run(link: FakeLink, kind: Kind, timeout = 30_000): Promise<void> {
  await muxOf(link).request(body, kind, { timeout });
}

const done = create(ResponseSchema, { body: { case: "put", value: create(PutResponseSchema) } });
const broken = new LinkError(true, "broken");

function refusal(reason: Reason): Response {
  const value = create(ErrorSchema, { reason, message: "no" });
  return create(ResponseSchema, { body: { case: "error", value } });
}

test("a write is repeated with its number", async () => {
  const link = new FakeLink([broken, done]);
  await run(link, "numbered");
  assert.deepEqual(link.sent.map((r) => r.number), [1n, 1n]);
});

test("a read has no number", async () => {
  const link = new FakeLink([broken, done]);
  await run(link, "read");
  assert.deepEqual(link.sent.map((r) => r.number), [0n, 0n]);
});

test("a refusal after an unknown outcome may be of the last try alone", async () => {
  const link = new FakeLink([broken, refusal(Reason.PERMISSION_DENIED)]);
  await assert.rejects(run(link, "numbered"), { code: "UNKNOWN_OUTCOME" });
});

test("an answer is that of all tries", async () => {
  const link = new FakeLink([broken, refusal(Reason.KEY_NOT_FOUND)]);
  await assert.rejects(run(link, "numbered"), { code: "KEY_NOT_FOUND" });
});

test("a forgotten session is replaced if nothing was done", async () => {
  await run(new FakeLink([refusal(Reason.SESSION_NOT_FOUND), done]), "numbered");
});

test("a forgotten session hides what was done", async () => {
  const link = new FakeLink([broken, refusal(Reason.SESSION_NOT_FOUND)]);
  await assert.rejects(run(link, "numbered"), { code: "UNKNOWN_OUTCOME" });
  assert.equal(link.sent.length, 2);
});

test("unavailable is tried again, invalid is not", async () => {
  await run(new FakeLink([refusal(Reason.UNAVAILABLE), done]), "numbered");
  const link = new FakeLink([refusal(Reason.INVALID)]);
  await assert.rejects(run(link, "numbered"), { code: "INVALID" });
  assert.equal(link.sent.length, 1);
});

test("no answer to a write is an unknown outcome, to a read it is not", async () => {
  await assert.rejects(run(new FakeLink([undefined]), "numbered", 10), { code: "UNKNOWN_OUTCOME" });
  await assert.rejects(run(new FakeLink([undefined]), "read", 10), { code: "UNAVAILABLE" });
});

test("a write that was never sent is unavailable", async () => {
  const link = new FakeLink([new LinkError(false, "not connected")]);
  const expected = { code: "UNAVAILABLE", message: /not connected/ };
  await assert.rejects(run(link, "numbered", 100), expected);
});

test("a call does not wait for another's opening of a session for longer than its timeout", async () => {
  const mux = muxOf(new FakeLink([], false));
  const ended: string[] = [];
  const call = async (name: string, timeout: number): Promise<void> => {
    await assert.rejects(mux.request(body, "numbered", { timeout }), { code: "UNAVAILABLE" });
    ended.push(name);
  };
  await Promise.all([call("first", 300), call("second", 10)]);
  assert.deepEqual(ended, ["second", "first"]);
});

test("a request that is given up is cancelled at the member", () => {
  const sent: Request[] = [];
  const stream = { write: (m: ClientMessage) => sent.push(...m.requests), cancel: () => {} };
  const link = new Link(stream as never, { close: () => {} } as never, 1000, () => {});
  const call: Call = { request: create(RequestSchema, { body }), answer: () => {}, lost: () => {} };
  link.send(call);
  link.flush();
  link.forget(call);
  link.flush();
  link.end("");
  assert.deepEqual(sent.map((r) => r.body.case), ["put", "cancel"]);
  assert.equal(sent[1]?.body.value, sent[0]?.id);
});
