package login

import (
	"container/list"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

// maxSeen bounds the tokens of which a member remembers when they were used. Of more, those that
// were used longest ago live only as long as if they had not been used.
const maxSeen = 1 << 16

// A simple token is, in base64: the member (8 bytes), the time of the login (8), the seal, random
// bytes (16) so that no two logins have the same token, the user's name, and the signature of all
// that.
const (
	sealAt   = 16
	sealLen  = 16
	randomAt = sealAt + sealLen
	nameAt   = randomAt + 16
	shortest = nameAt + ed25519.SignatureSize
	longest  = 4096
)

// MaxName is the longest name of a user that a token can be for.
const MaxName = longest - shortest

var encoding = base64.RawURLEncoding.Strict()

// simple gives tokens that end when they have not been used for a while.
//
// etcd sends each login through the log, so that all members know its token. Here the log has a
// public key for each member that was logged in at since its start, and the members check the
// signature: nothing in the log or a backup makes a token, and a login costs no entry. As in etcd
// a token is renewed by use at the member where it is used. A member that has not seen it yet
// counts from the login, by the clock of the machine: so these must not be apart by more than
// the tokens' TTL, or clients log in again and again.
type simple struct {
	ttl    time.Duration
	now    func() time.Time
	member uint64

	mu  sync.Mutex // guards what follows
	key ed25519.PrivateKey
	// used says that there are tokens of the key.
	used bool
	seen map[[sha256.Size]byte]*list.Element
	// uses has a *use for each of seen, the last one first.
	uses *list.List
}

// use is a token that was checked.
type use struct {
	token  [sha256.Size]byte // hashed: where it is found tells nothing of another token
	user   string
	seal   [sealLen]byte
	member uint64
	key    [sha256.Size]byte // of the member, hashed
	at     time.Time         // when it was used last
}

func newSimple(o Options) (*simple, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return &simple{
		ttl: o.TTL, now: o.Now, member: o.Member, key: key,
		seen: make(map[[sha256.Size]byte]*list.Element), uses: list.New(),
	}, nil
}

// Key implements Provider. After access control was disabled the key is another one: the tokens of
// before do not count again when it is enabled.
func (s *simple) Key(now func() Users) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	public := s.key.Public().(ed25519.PublicKey)
	switch known := now().Key(s.member); {
	case public.Equal(ed25519.PublicKey(known)):
		return nil
	case s.used:
		public, s.key, _ = ed25519.GenerateKey(rand.Reader) // never fails
		s.used = false
	}
	return public
}

// sealOf binds a token to the password of its user: a token of an older one counts no more.
func sealOf(hash []byte) [sealLen]byte {
	sum := sha256.Sum256(append([]byte("leasehold simple token\x00"), hash...))
	return [sealLen]byte(sum[:sealLen])
}

// Give implements Provider.
func (s *simple) Give(user string, u Users) (string, error) {
	hash, ok := u.Hash(user)
	if !ok {
		return "", ErrInvalid
	}
	b := make([]byte, nameAt, shortest+len(user))
	binary.BigEndian.PutUint64(b, s.member)
	binary.BigEndian.PutUint64(b[8:], uint64(s.now().UnixMilli()))
	seal := sealOf(hash)
	copy(b[sealAt:], seal[:])
	rand.Read(b[randomAt:]) // never fails
	b = append(b, user...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
	return encoding.EncodeToString(append(b, ed25519.Sign(s.key, b)...)), nil
}

// Check implements Provider.
func (s *simple) Check(token string, u Users) (Caller, error) {
	sum := sha256.Sum256([]byte(token))
	known, ok := s.find(sum)
	if !ok {
		if known, ok = s.open(token, u); !ok {
			return Caller{}, ErrInvalid
		}
		known.token = sum
	}
	if !known.counts(u) {
		return Caller{}, ErrInvalid
	}
	s.note(known)
	return Caller{User: known.user}, nil
}

// counts reports whether the user still has the password of the login, and the member that gave
// the token its key: it has another one after a restart, and none after authentication was
// disabled.
func (k *use) counts(u Users) bool {
	hash, ok := u.Hash(k.user)
	if !ok || sha256.Sum256(u.Key(k.member)) != k.key {
		return false
	}
	seal := sealOf(hash)
	return subtle.ConstantTimeCompare(seal[:], k.seal[:]) == 1
}

// open reads a token that this member has not seen.
func (s *simple) open(token string, u Users) (use, bool) {
	b, err := encoding.DecodeString(token)
	if err != nil || len(b) < shortest || len(b) > longest {
		return use{}, false
	}
	signed, signature := b[:len(b)-ed25519.SignatureSize], b[len(b)-ed25519.SignatureSize:]
	k := use{
		member: binary.BigEndian.Uint64(signed), user: string(signed[nameAt:]),
		seal: [sealLen]byte(signed[sealAt:randomAt]),
	}
	key := u.Key(k.member)
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, signed, signature) {
		return use{}, false
	}
	k.key = sha256.Sum256(key)
	age := s.now().Sub(time.UnixMilli(int64(binary.BigEndian.Uint64(signed[8:]))))
	return k, age.Abs() < s.ttl
}

// find returns a token that was used here and has not ended since.
func (s *simple) find(token [sha256.Size]byte) (use, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.seen[token]
	if !ok || s.now().Sub(e.Value.(*use).at) >= s.ttl {
		return use{}, false
	}
	return *e.Value.(*use), true
}

// note remembers that a token was used now, and forgets those that have ended or are too many.
func (s *simple) note(k use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.at = s.now()
	if e, ok := s.seen[k.token]; ok {
		*e.Value.(*use) = k
		s.uses.MoveToFront(e)
	} else {
		s.seen[k.token] = s.uses.PushFront(&k)
	}
	for e := s.uses.Back(); len(s.seen) > maxSeen || k.at.Sub(e.Value.(*use).at) >= s.ttl; {
		delete(s.seen, s.uses.Remove(e).(*use).token)
		e = s.uses.Back()
	}
}
