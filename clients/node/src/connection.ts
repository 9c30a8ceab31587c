import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { readFileSync } from "node:fs";

import { LeaseholdError } from "./errors.js";
import type { ClientMessage, ServerMessage } from "./v1/stream_pb.js";
import { ClientMessageSchema, ServerMessageSchema } from "./v1/stream_pb.js";

/** PEM files. They are read for each connection, so they can be replaced. */
export interface TLS {
  /** The root certificates for members. By default, the system's are used. */
  ca?: string;
  cert?: string;
  key?: string;
  /** The name in the members' certificates, if it differs from the endpoint's host. */
  serverName?: string;
}

/** The data that both threads need to connect. It can be sent to a worker. */
export interface Target {
  endpoints: Endpoint[];
  tls: TLS;
  user: string;
  password: string;
  token: string;
  tokenFile: string;
  /** How long a member may leave a request unanswered, in milliseconds. */
  memberTimeout: number;
  dialTimeout: number;
}

export interface Endpoint {
  address: string;
  secure: boolean;
}

export function parseEndpoint(text: string, tls: boolean): Endpoint {
  const [, scheme, address] = /^(?:([a-z]+):\/\/)?(.*?)\/?$/.exec(text.trim()) ?? [];
  if (scheme !== undefined && scheme !== "http" && scheme !== "https") {
    throw new LeaseholdError("INVALID", `endpoint ${text}: the scheme is not http or https`);
  }
  if (!address || !/^unix:|:\d+$/.test(address)) {
    throw new LeaseholdError("INVALID", `endpoint ${text} has no port`);
  }
  return { address, secure: scheme === "https" || (tls && scheme !== "http") };
}

export type Stream = grpc.ClientDuplexStream<ClientMessage, ServerMessage>;

/** The client uses only this call of etcd's Auth service, so it encodes its messages by hand. */
const login = "/etcdserverpb.Auth/Authenticate";

function varint(n: number): number[] {
  return n > 127 ? [(n & 127) | 128, ...varint(n >> 7)] : [n];
}

/** The name is field 1, and the password is field 2. */
export function loginRequest(user: string, password: string): Buffer {
  const field = (n: number, value: string): Buffer => {
    const raw = Buffer.from(value);
    return Buffer.concat([Buffer.from([(n << 3) | 2, ...varint(raw.length)]), raw]);
  };
  return Buffer.concat([field(1, user), field(2, password)]);
}

/** The token is field 2. All fields of the answer are length-delimited. */
export function loginToken(answer: Buffer): string {
  let at = 0;
  const number = (): number => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = answer[at++] ?? 0;
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < answer.length) {
    const tag = number();
    const end = number() + at;
    if (tag === ((2 << 3) | 2)) return answer.subarray(at, end).toString();
    at = end;
  }
  return "";
}

/** Connects one thread to members. It keeps the token of a login. */
export class Connector {
  private loggedIn = "";
  private earlier = false; // the last connection used the token of an earlier login

  constructor(readonly target: Target) {}

  /** Returns a new connection. The caller must close it. */
  dial(e: Endpoint): grpc.Client {
    const t = this.target;
    const read = (file?: string): Buffer | null => (file ? readFileSync(file) : null);
    const credentials = e.secure
      ? grpc.credentials.createSsl(read(t.tls.ca), read(t.tls.key), read(t.tls.cert))
      : grpc.credentials.createInsecure();
    return new grpc.Client(e.address, credentials, {
      "grpc.keepalive_time_ms": 6000, // members allow one ping every five seconds
      "grpc.keepalive_timeout_ms": t.memberTimeout,
      "grpc.max_receive_message_length": -1,
      "grpc.use_local_subchannel_pool": 1,
      "grpc.enable_retries": 0,
      ...(t.tls.serverName ? { "grpc.ssl_target_name_override": t.tls.serverName } : {}),
    });
  }

  private async token(client: grpc.Client): Promise<string> {
    const t = this.target;
    if (t.tokenFile) return readFileSync(t.tokenFile, "utf8").trim();
    if (!t.user) return t.token;
    this.earlier = this.loggedIn !== "";
    this.loggedIn ||= await this.logIn(client);
    return this.loggedIn;
  }

  private logIn(client: grpc.Client): Promise<string> {
    const t = this.target;
    return new Promise((resolve, reject) => {
      const done = (e: grpc.ServiceError | null, answer?: Buffer): void => {
        if (!e) {
          resolve(loginToken(answer ?? Buffer.alloc(0)));
        } else if (
          e.code === grpc.status.FAILED_PRECONDITION &&
          e.details.includes("not enabled")
        ) {
          resolve(""); // the cluster has no users
        } else if (e.code === grpc.status.INVALID_ARGUMENT) {
          const why = `login as user ${t.user} was rejected: ${e.details}`;
          reject(new LeaseholdError("NOT_LOGGED_IN", why));
        } else {
          reject(e);
        }
      };
      const same = (b: Buffer): Buffer => b;
      const request = loginRequest(t.user, t.password);
      const deadline = Date.now() + t.dialTimeout;
      client.makeUnaryRequest(login, same, same, request, { deadline }, done);
    });
  }

  /** Opens a stream. Errors are reported as events. */
  async open(client: grpc.Client): Promise<Stream> {
    const metadata = new grpc.Metadata();
    const token = await this.token(client);
    if (token) metadata.set("token", token);
    return client.makeBidiStreamRequest(
      "/leasehold.v1.StreamService/Open",
      (m: ClientMessage) => Buffer.from(toBinary(ClientMessageSchema, m)),
      (b: Buffer) => fromBinary(ServerMessageSchema, b),
      metadata,
    );
  }

  /** Converts the error of a broken stream. It discards a login that is no longer valid. */
  explain(e: unknown): LeaseholdError {
    if (e instanceof LeaseholdError) return e;
    const { code, details } = e as Partial<grpc.ServiceError>;
    if (code === grpc.status.UNAUTHENTICATED) {
      this.loggedIn = "";
      if (this.earlier) {
        return new LeaseholdError("UNAVAILABLE", `the login has expired: ${details ?? ""}`);
      }
    }
    if (code === grpc.status.UNAUTHENTICATED || code === grpc.status.PERMISSION_DENIED) {
      const why = `the cluster rejected the login: ${details ?? ""}`;
      return new LeaseholdError("NOT_LOGGED_IN", why);
    }
    if (code === grpc.status.UNIMPLEMENTED) {
      return new LeaseholdError("UNAVAILABLE", "the server does not serve leasehold.v1");
    }
    return new LeaseholdError("UNAVAILABLE", details || String(e));
  }
}

export function message(init: {
  requests: ClientMessage["requests"];
  session?: ClientMessage["session"];
  acknowledgedBelow?: bigint;
}): ClientMessage {
  return create(ClientMessageSchema, init);
}
