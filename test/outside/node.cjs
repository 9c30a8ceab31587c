// Uses Node's package etcd3 as a program would, against a server on port 2379, and
// reports as Go does. etcd3 comes with no tests of its own.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const { EtcdLeaseInvalidError, EtcdLockFailedError, Etcd3 } = require('etcd3');

const serializable = 1; // etcd3's Isolation.Serializable, which it does not export
const hosts = 'http://127.0.0.1:2379';

// again asks until f has the answer, for ten seconds at most.
async function again(f) {
  const end = Date.now() + 10_000;
  for (;;) {
    const got = await f();
    if (got || Date.now() > end) {
      return got;
    }
    await new Promise((done) => setTimeout(done, 20));
  }
}

const tests = {
  async PutGetDelete(c) {
    await c.put('a').value('1');
    assert.equal(await c.get('a'), '1');
    assert.equal(await c.get('none'), null);
    await c.put('n').value(7);
    assert.equal(await c.get('n').number(), 7);
    assert.equal((await c.delete().key('a')).deleted, '1');
    assert.equal(await c.get('a').exists(), false);
  },

  async Ranges(c) {
    for (const [k, v] of [['p/2', 'b'], ['p/1', 'c'], ['p/3', 'a'], ['q', 'x']]) {
      await c.put(k).value(v);
    }
    assert.deepEqual(await c.getAll().prefix('p/').strings(), { 'p/1': 'c', 'p/2': 'b', 'p/3': 'a' });
    assert.deepEqual(await c.getAll().prefix('p/').sort('Value', 'Ascend').keys(), ['p/3', 'p/2', 'p/1']);
    assert.deepEqual(await c.getAll().prefix('p/').limit(2).keys(), ['p/1', 'p/2']);
    assert.equal(await c.getAll().prefix('p/').count(), 3);
    assert.equal((await c.delete().prefix('p/')).deleted, '3');
    assert.equal(await c.namespace('q').get('').string(), 'x');
  },

  async Transactions(c) {
    const set = (value) => c.if('t', 'Create', '==', 0).then(c.put('t').value(value))
      .else(c.get('t')).commit();
    assert.equal((await set('1')).succeeded, true);
    const second = await set('2');
    assert.equal(second.succeeded, false);
    assert.equal(second.responses[0].response_range.kvs[0].value.toString(), '1');
  },

  async SoftwareTransactions(c) {
    await c.put('from').value(100);
    await c.put('to').value(0);
    const move = () => c.stm({ isolation: serializable, retries: 20 }).transact(async (tx) => {
      const [from, to] = [await tx.get('from').number(), await tx.get('to').number()];
      await tx.put('from').value(from - 1);
      await tx.put('to').value(to + 1);
    });
    await Promise.all(Array.from({ length: 4 }, move));
    assert.equal(await c.get('from').number(), 96);
    assert.equal(await c.get('to').number(), 4);
  },

  async LeaseKeepsItsKey(c) {
    const lease = c.lease(2);
    await lease.put('alive').value('1');
    await lease.keepaliveOnce();
    const kept = once(lease, 'keepaliveSucceeded');
    await kept;
    assert.equal(await c.get('alive'), '1');
    await lease.revoke();
    assert.equal(await c.get('alive'), null);
  },

  async LeaseLost(c) {
    const lease = c.lease(1);
    const id = await lease.grant();
    const lost = once(lease, 'lost');
    await c.leaseClient.leaseRevoke({ ID: id });
    assert.ok((await lost)[0] instanceof EtcdLeaseInvalidError);
    await assert.rejects(async () => lease.put('x').value('1'));
  },

  async LeaseExpires(c) {
    const lease = c.lease(1, { autoKeepAlive: false });
    await lease.put('brief').value('1');
    assert.equal(await again(async () => (await c.get('brief')) === null), true);
    lease.release();
  },

  async Watch(c) {
    const w = await c.watch().prefix('w/').create();
    const events = [];
    const three = new Promise((done) => {
      const add = (kind) => (kv) => {
        if (events.push(`${kind} ${kv.key}`) === 3) {
          done();
        }
      };
      w.on('put', add('put')).on('delete', add('delete'));
    });
    await c.put('w/1').value('a');
    await c.put('other').value('a');
    await c.put('w/2').value('b');
    await c.delete().key('w/1');
    await three;
    assert.deepEqual(events, ['put w/1', 'put w/2', 'delete w/1']);
    await w.cancel();
  },

  async WatchFromTheFirstRevision(c) {
    const first = (await c.put('past').value('1')).header.revision;
    await c.put('past').value('2');
    const w = await c.watch().key('past').startRevision(first).create();
    const seen = [];
    await new Promise((done) => w.on('put', (kv) => seen.push(`${kv.value}`) === 2 && done()));
    assert.deepEqual(seen, ['1', '2']);
    await w.cancel();
  },

  async LockExcludes(c) {
    const other = new Etcd3({ hosts });
    const [mine, theirs] = [c.lock('job'), other.lock('job')];
    await mine.acquire();
    await assert.rejects(theirs.acquire(), EtcdLockFailedError);
    // A transaction that makes the key if it is not there excludes it as well.
    assert.equal((await c.if('job', 'Create', '==', 0).then(c.put('job').value('')).commit())
      .succeeded, false);
    await mine.release();
    await theirs.acquire();
    await assert.rejects(c.lock('job').acquire(), EtcdLockFailedError);
    await theirs.release();
    other.close();
  },

  async LockUnderContention(c) {
    let inside = 0;
    let turns = 0;
    const worker = async () => {
      for (let held = 0; held < 5;) {
        try {
          await c.lock('busy').ttl(5).do(async () => {
            assert.equal(++inside, 1, 'two are inside');
            turns++;
            await c.get('busy');
            inside--;
          });
          held++;
        } catch (err) {
          if (!(err instanceof EtcdLockFailedError)) {
            throw err;
          }
        }
      }
    };
    await Promise.all(Array.from({ length: 4 }, worker));
    assert.equal(turns, 20);
  },

  async Election(c) {
    const election = c.election('chief', 5);
    const first = election.campaign('one');
    await first.wait();
    assert.equal(await election.leader(), 'one');
    const observer = await election.observe();
    assert.equal(observer.leader(), 'one');
    const second = election.campaign('two');
    await first.proclaim('one, renamed');
    assert.equal(await again(() => observer.leader() === 'one, renamed'), true);
    const elected = second.wait();
    await first.resign();
    await elected;
    assert.equal(await again(() => observer.leader() === 'two'), true);
    await observer.cancel();
    await second.resign();
    assert.equal(await election.leader(), undefined);
  },

  async MembersAndStatus(c) {
    const { members } = await c.cluster.memberList({});
    assert.equal(members.length, 1);
    const status = await c.maintenance.status();
    assert.match(status.version, /^3\./);
    assert.equal(status.leader, members[0].ID);
  },
};

async function main() {
  for (const [name, test] of Object.entries(tests)) {
    const c = new Etcd3({ hosts });
    await c.delete().all();
    console.log(`=== RUN   Test${name}`);
    const began = Date.now();
    let word = 'PASS';
    try {
      await test(c);
    } catch (err) {
      word = 'FAIL';
      console.log(err.stack);
    }
    console.log(`--- ${word}: Test${name} (${((Date.now() - began) / 1000).toFixed(2)}s)`);
    c.close();
  }
}

main().then(() => process.exit(0));
