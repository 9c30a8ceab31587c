package target

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// sign signs a request as "Signature Version 4" of AWS says. The request has the SHA-256 of its
// body among its headers already. A library for this would weigh more than all else here: a test
// compares with one.
func (k keys) sign(r *http.Request, region string, now time.Time) {
	const signed = "host;x-amz-content-sha256;x-amz-date"
	sum := r.Header.Get("X-Amz-Content-Sha256")
	date := now.UTC().Format("20060102T150405Z")
	names, values := signed, []string{r.URL.Host, sum, date}
	r.Header.Set("X-Amz-Date", date)
	if k.session != "" {
		r.Header.Set("X-Amz-Security-Token", k.session)
		names, values = names+";x-amz-security-token", append(values, k.session)
	}
	text := r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.RawQuery + "\n"
	for i, name := range strings.Split(names, ";") {
		text += name + ":" + values[i] + "\n"
	}
	text += "\n" + names + "\n" + sum
	scope := date[:8] + "/" + region + "/s3/aws4_request"
	hash := sha256.Sum256([]byte(text))
	key := []byte("AWS4" + k.secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	text = "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + hex.EncodeToString(hash[:])
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.id+"/"+scope+
		", SignedHeaders="+names+", Signature="+hex.EncodeToString(mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
