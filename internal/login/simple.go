package login

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

// A simple token contains, in base64: the member (8 bytes), the time of the login (8 bytes), the
// seal (16 bytes), random bytes (16 bytes) that distinguish the tokens of two logins, the user's
// name, and the signature of all of these.
const (
	sealAt   = 16
	sealLen  = 16
	randomAt = sealAt + sealLen
	nameAt   = randomAt + 16
	shortest = nameAt + ed25519.SignatureSize
	longest  = 4096
)

// MaxName is the maximum length of a user name for which a token can be issued.
const MaxName = longest - shortest

var encoding = base64.RawURLEncoding.Strict()

// simple issues tokens that expire if they have not been used for a while.
//
// etcd sends each login through the log, so that all members know its token. Here, the log contains
// a public key for each member that has issued a token since it started, and members check the
// signature. So no token can be created from the log or a backup, and a login needs no log entry.
// As in etcd, using a token extends its lifetime, but only at the member where it is used. A member
// that has not seen the token measures its lifetime from the login, by the machine's clock. If the
// clocks of members differ by more than the TTL of the tokens, clients have to log in repeatedly.
type simple struct {
	ttl    time.Duration
	now    func() time.Time
	member uint64

	mu  sync.Mutex // guards the fields below
	key ed25519.PrivateKey
	// used is true if tokens have been issued with the key.
	used bool
	// seen contains tokens that have been checked. If there are too many, the least recently used
	// ones are evicted. They expire as if they had never been used.
	seen seen[use]
}

// use is a token that has been checked.
type use struct {
	user   string
	hash   []byte // hash of the password with which the token was obtained
	member uint64
	key    string    // public key of the issuing member
	at     time.Time // when the token was last used
}

func newSimple(o Options) (*simple, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return &simple{
		ttl: o.TTL, now: o.Now, member: o.Member, key: key,
		seen: newSeen[use](),
	}, nil
}

// Key implements Provider. It returns a new key after access control has been disabled, so that old
// tokens do not become valid again when access control is enabled.
func (s *simple) Key(now func() Users) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	public := s.key.Public().(ed25519.PublicKey)
	switch {
	case string(public) == now().Key(s.member):
		return nil
	case s.used:
		public, s.key, _ = ed25519.GenerateKey(rand.Reader) // never fails
		s.used = false
	}
	return public
}

// sealOf binds a token to its user's password. When the password changes, older tokens become
// invalid.
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
	if user, ok := s.find(token, u); ok {
		return Caller{User: user}, nil
	}
	k, ok := s.open(token, u)
	if !ok {
		return Caller{}, ErrInvalid
	}
	s.note(token, k)
	return Caller{User: k.user}, nil
}

// counts reports whether the user still has the same password as at the login, and whether the
// issuing member still has the same key. A member gets a new key when it restarts, and has none
// after authentication has been disabled.
func (k *use) counts(u Users) bool {
	hash, ok := u.Hash(k.user)
	return ok && bytes.Equal(hash, k.hash) && u.Key(k.member) == k.key
}

// find returns the user of a token that has been used here, has not expired since, and is still
// valid. It is called for each request. It checks the current users, but does not compute a
// signature.
func (s *simple) find(token string, u Users) (user string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.seen.find(token)
	now := s.now()
	if k == nil || now.Sub(k.at) >= s.ttl || !k.counts(u) {
		return "", false
	}
	k.at = now
	return k.user, true
}

// open checks a token that this member has not seen before, or that was invalid or had expired when
// it was last checked.
func (s *simple) open(token string, u Users) (use, bool) {
	b, err := encoding.DecodeString(token)
	if err != nil || len(b) < shortest || len(b) > longest {
		return use{}, false
	}
	signed, signature := b[:len(b)-ed25519.SignatureSize], b[len(b)-ed25519.SignatureSize:]
	k := use{
		member: binary.BigEndian.Uint64(signed), user: string(signed[nameAt:]),
	}
	k.key = u.Key(k.member)
	if len(k.key) != ed25519.PublicKeySize ||
		!ed25519.Verify(ed25519.PublicKey(k.key), signed, signature) {
		return use{}, false
	}
	hash, ok := u.Hash(k.user)
	seal := sealOf(hash)
	if !ok || subtle.ConstantTimeCompare(seal[:], signed[sealAt:randomAt]) != 1 {
		return use{}, false
	}
	k.hash, k.at = hash, s.now()
	age := k.at.Sub(time.UnixMilli(int64(binary.BigEndian.Uint64(signed[8:]))))
	return k, age.Abs() < s.ttl
}

// note records the use of a token, and evicts expired tokens.
func (s *simple) note(token string, k use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.note(token, k, func(other *use) bool { return k.at.Sub(other.at) >= s.ttl })
}
