// Package fsm is the replicated state machine. It is the only package that connects the lease
// table with the key-value store.
//
// A Machine applies the commands of the Raft log, in order, to the lease table and the store.
// Apply is deterministic: the same commands produce the same state, revisions and hash on every
// member. It reads no clock, uses no random numbers and does not depend on which member is the
// leader. Instead, the proposer puts IDs and times into the command. Only the lease tracker, which
// has the leader's timers, differs between members. It is not part of the state.
//
// The package is pure: it starts no goroutines, takes no locks and does no I/O. Its caller, the
// replica, owns a Machine and calls it from one goroutine. Views are immutable, and any goroutine
// may read them.
//
// # Formats
//
// Log entries and snapshots consist of the records below. testdata/v1 has an example of each, and a
// test fails if its encoding changes. docs/formats.md describes the files that contain them.
//
// A decoder reads the version first. If the version does not have a flag, kind or choice, the
// decoder returns an error that names the required release. It never ignores unknown data. Data
// that is not valid in any version is corrupt.
//
// uv and sv are unsigned and signed (zig-zag) varints, as in protobuf. 8 is eight bytes,
// big-endian. A text is its length (uv) followed by its bytes. A list is its length (uv) followed
// by its elements. Fields are listed in the order in which they are encoded. [Fields in brackets]
// are present if their flag is set. Instants and TTLs are in milliseconds.
//
// An entry is a version (one byte, the cluster version when it was written) followed by groups of
// commands. A group can begin with a header: a byte with 0x80 set and the flags 1 (origin) and 2
// (count), then [member 8, number 8], and [count uv; 1 if absent]. Commands without a header come
// from clients of the member that proposed the entry. Kinds of commands are below 0x80.
//
// A ref identifies a lease. It is a byte of flags: 1 (ID), 2 (name), 4 (token), and from 8 on the
// command's own flags. After it come [ID 8], [name text] and [token uv].
//
//	kind    command           fields
//	1       Put               ref with 8 previous, 16 keep value, 32 keep lease, 64 most keys;
//	                          key text, value text, [most keys sv]
//	2       DeleteRange       flags 1 previous, 2 end; key, [end]
//	3       Txn               list of compares, operations if all hold, operations if not
//	4       Once              session uv, nonce 8, number uv, settled below uv, command
//	5       OpenSession       nonce 8
//	6       Grant             flags 1 renew, 2 holds; terms, [list of ranges]
//	7       Revoke            ref with 8 by; [by text]
//	8       ChangeTTL         ref with 8 bound; TTL sv, [largest TTL of a cache sv]
//	9       HandOver          ref with 8 secret, 16 principal; owner text, [secret, 32 bytes],
//	                          [principal text]
//	10      Resume            ref without token, with 8 secret; [secret, 32 bytes]
//	11      Expire            term uv, list of ID 8, token uv, stamp uv
//	12      Checkpoint        term uv, list of ID 8, token uv, remaining sv, stamp uv
//	13      DropOrphans       list of token uv
//	14      Compact           revision sv
//	15      SetAlarm          flags 1 off; member 8, kind (one byte, 1 or 2)
//	16, 17  SetMember,        member
//	        AddMember
//	18, 19  RemoveMember,     ID 8
//	        PromoteMember
//	20      SetVersion        flags 1 hold; cluster version (one byte, not 0)
//	21      By                user text, revision of access control uv, command
//	22, 23  AuthEnable,       none
//	        AuthDisable
//	24      UserAdd           flags 1 without a password; name, hash of the password
//	25, 26  UserDelete,       name; for 26 also the hash
//	        UserPassword
//	27, 28  UserGrantRole,    user, role
//	        UserRevokeRole
//	29, 30  RoleAdd,          name
//	        RoleDelete
//	31      RoleGrant         role, permission
//	32      RoleRevoke        flags 1 names; role, key, end
//	33      By, if the        its name text, revision of access control uv, list of its roles,
//	        principal is      command
//	        not a user
//	34      SetLimits         limits
//	35      HashState         none
//	36      StateHash         member 8, index uv, hash uv
//
// What commands contain:
//
//	compare     target (one byte: 0 to 4 as in etcd, 16 to 18 for conditions on leases), relation
//	            (0 to 3), key, end, value (text for targets 3 and 18, else sv)
//	operation   kind (1 put, 2 delete, 3 range, 4 transaction, 5 grant, 6 revoke, 7 touch (a ref),
//	            8 draw a token (no fields)) and its fields as above
//	range       to read: flags 1 end, 2 revision, 4 limit, 8 revisions, 16 order, 32 descending,
//	            64 count only; key, [end], [revision sv], [limit sv], [least and largest mod and
//	            create revision, sv each], [order, one byte, 0 to 5]
//	range       of a hold: key text, end text
//	permission  kind (one byte: of keys 0 read, 1 write, 2 both; of lease names 16 see,
//	            17 hold, 18 manage), key, end
//	limits      scope (one byte: 0 everyone, 1 a role, 2 a user), its name text, list of resource
//	            (one byte: 0 leases, 1 keys on leases, 2 bytes, 3 rate) and limit sv (0 if none is
//	            set, -1 for no limit)
//	terms       of a lease: flags 1 name, 2 owner, 4 request, 8 labels, 16 more; ID 8, TTL sv,
//	            [name], [owner], [request], [labels: count uv, then key and value texts, keys in
//	            order], [flags 1 keep keys, 2 bound, 4 lock delay, 8 secret, 16 principal;
//	            [lock delay sv], [secret], [principal]]
//	lease       flags 1 delayed, 2 remaining; terms, token uv, stamp uv, [remaining sv]
//	member      flags 1 learner, 2 incarnation, 4 versions, 8 quota, 16 key; ID 8,
//	            [incarnation 8], [oldest and newest cluster version that it supports, a byte each],
//	            [quota sv, not 0, negative for none], [public key of its tokens], name, list of
//	            peer URLs, list of client URLs
//
// A snapshot is a sequence of chunks of about 1 MiB. A chunk consists of whole records. Each record
// follows its tag (one byte). Records are in the order of this table:
//
//	tag  record         fields
//	1    header         version (one byte: the cluster version), index uv, term uv, revision sv,
//	                    compacted revision sv, last token uv, generation uv, last event uv, last
//	                    session uv, flags 1 held, 2 fell when held, index of the entry that
//	                    decided the cluster version uv
//	19   restore        if the state comes from a backup: its ID 8, not 0
//	2    member         member
//	7    removed        ID 8
//	3    alarm          member 8, kind (one byte, 1 NOSPACE, 2 CORRUPT; found by comparison: 3 the
//	                    member differs, 4 no majority)
//	18   comparison     of the states, if there ever was one: index uv of the HashState, list of
//	                    member 8 and hash uv, in the order of the members
//	12   access         if access control was ever used: flags 1 enabled; revision uv, from 1
//	13   role           name, list of permissions
//	14   user           flags 1 without a password; name, hash of the password, list of roles
//	16   limits         limits
//	4    lease          lease
//	8    session        ID uv, nonce 8, settled below uv; least recently used session first
//	15   session user   of the preceding session: name, not empty
//	9    answer         of the preceding session: number uv, result
//	10   holds          ID of the lease 8, list of ranges, not empty
//	11   orphan         ranges that a cache may hold after its lease ended: lease, list of ranges
//	17   account        leases charged to a principal: its name text, list of ID 8, not empty
//	5    version        of a key, by revision and place: flags 1 tombstone, 2 lease, 4 writer,
//	                    8 long key; mod revision sv, place in it sv, key text or [long key: name],
//	                    [lease 8, of a tombstone the one that ended it], [principal that
//	                    is charged: name], and unless it is a tombstone value text, create
//	                    revision sv, version sv
//	6    trailer        number of preceding records uv
//
// A name in a version is the number (uv) of a text in this snapshot. Texts are numbered from 1 in
// order of first use. 0 means that a new text follows. Keys of 64 bytes or more are long.
//
// A result is a revision (sv), a refusal (one byte), and the value if the refusal is 0. A pair is
// flags 1 lease; key, value, create revision sv, mod revision sv, version sv, [lease 8].
//
//	refusal             fields
//	1 name taken        name, lease
//	2 too many keys     ID 8, limit sv
//	3 TTL               got, least, largest, sv each
//	4 TTL of a cache    got, largest, sv each
//	5 no such name      name, ID 8
//	32 to 43            none: key not found, session not found, transaction too large, lease not
//	                    found, lease exists, bad ID of a lease, bound to another key, compacted,
//	                    future revision, bad holds, too many holds, too many holds of one owner
//
//	value               fields
//	1 put               flags 1 previous; [pair]
//	2 delete            count sv, list of pairs
//	3 transaction       flags 1 succeeded; list of values
//	4 range             flags 1 more; count sv, revision sv, list of pairs
//	5 lease             lease
//	6 revoke            count sv
//	7 existing lease    lease
//	8 token             uv
package fsm
