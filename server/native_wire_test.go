package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"leasehold.dev/test/virtual"
)

// post sends a JSON request about leases, and returns the HTTP status and the response.
func (r *running) post(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	return r.postTo(t, "leases/"+path, body)
}

// postTo sends a JSON request to a member, and returns the HTTP status and the response.
func (r *running) postTo(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://member/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := webClient(t, r.cfg.URLs.ListenClient[0].Path).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%s: %s: %v", path, data, err)
	}
	return resp.StatusCode, out
}

// TestNativeJSON checks that every call can be made in JSON. Bytes are encoded in base64, 64-bit
// numbers as strings, and reasons by name. Errors include their details.
func TestNativeJSON(t *testing.T) { virtual.Test(t, testNativeJSON) }

func testNativeJSON(t *testing.T) {
	r := run(t, testConfig(shortDir(t)))
	status, granted := r.post(t, "grant", `{"ttl_ms":"60000","name":"job","owner":"me",
		"labels":{"zone":"a"},"resumable":true,"at_expiry":"AT_EXPIRY_KEEP",
		"keys":[{"key":"aw==","value":"dg=="}]}`)
	l, _ := granted["lease"].(map[string]any)
	if status != 200 || l["name"] != "job" || l["ttl_ms"] != "60000" ||
		l["at_expiry"] != "AT_EXPIRY_KEEP" || granted["secret"] == nil {
		t.Fatalf("grant: %d %v", status, granted)
	}
	ref := fmt.Sprintf(`{"id":%q,"token":%q}`, l["id"], l["token"])
	if got := r.get(t, "k"); got != "v" {
		t.Errorf("the key is %q", got)
	}
	for _, tt := range []struct{ path, body, want string }{
		{"renew", `{"leases":[` + ref + `,{"id":"5"}]}`, `ttl_ms:60000`},
		{"renew", `{"leases":[{"id":"5"}]}`, `reason:REASON_LEASE_NOT_FOUND`},
		{
			"renew", fmt.Sprintf(`{"ids":[%q,"5"],"tokens":[%q,"0"]}`, l["id"], l["token"]),
			`results:[map[id:5 reason:REASON_LEASE_NOT_FOUND]] ttl_ms:[60000 0]`,
		},
		{"describe", `{"name":"job","keys":true}`, `keys:[aw==]`},
		{"list", `{"name_prefix":"j","labels":{"zone":"a"}}`, `remaining_ms:`},
		{"token", `{"name":"job","token":` + fmt.Sprintf("%q", l["token"]) + `}`, `valid:true`},
		{"ttl", `{"lease":` + ref + `,"ttl_ms":"90000"}`, `ttl_ms:90000`},
		{"attach", `{"lease":` + ref + `,"keys":["aw=="]}`, `revision:`},
		{"detach", `{"lease":` + ref + `,"keys":["aw=="]}`, `revision:`},
		{"resume", fmt.Sprintf(`{"name":"job","secret":%q}`, granted["secret"]), `owner:me`},
	} {
		status, got := r.post(t, tt.path, tt.body)
		if text := fmt.Sprint(got); status != 200 || !strings.Contains(text, tt.want) {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, status, text)
		}
	}
	for _, tt := range []struct {
		path, body string
		status     int
		reason     string
	}{
		{"grant", `{"ttl_ms":"60000","name":"job"}`, 409, "REASON_NAME_TAKEN"},
		{"grant", `{"ttl_ms":"1"}`, 400, "REASON_INVALID"},
		{"describe", `{"name":"none"}`, 404, "REASON_LEASE_NOT_FOUND"},
		{"handover", `{"lease":` + ref + `,"owner":"you"}`, 404, "REASON_LEASE_NOT_FOUND"},
	} {
		status, got := r.post(t, tt.path, tt.body)
		details, _ := got["details"].([]any)
		if len(details) != 2 || status != tt.status {
			t.Errorf("%s %s: %d %v", tt.path, tt.body, status, got)
			continue
		}
		d, _ := details[0].(map[string]any)
		holder, _ := d["holder"].(map[string]any)
		if d["@type"] != "type.googleapis.com/leasehold.v1.Error" || d["reason"] != tt.reason ||
			(holder["id"] == l["id"]) != (tt.status == 409) {
			t.Errorf("%s %s: details %v", tt.path, tt.body, d)
		}
		info, _ := details[1].(map[string]any)
		if info["@type"] != "type.googleapis.com/google.rpc.ErrorInfo" ||
			"REASON_"+fmt.Sprint(info["reason"]) != tt.reason || info["domain"] != "leasehold.dev" {
			t.Errorf("%s %s: details %v", tt.path, tt.body, info)
		}
	}
	status, got := r.postTo(t, "store/txn", `{"success":[{"draw_token":{}}]}`)
	drawn, _ := got["responses"].([]any)
	if text := fmt.Sprint(drawn); status != 200 || !strings.Contains(text, "draw_token:") {
		t.Errorf("draw: %d %v", status, got)
	}
	status, got = r.post(t, "revoke", `{"leases":[{"id":`+fmt.Sprintf("%q", l["id"])+`}]}`)
	if status != 200 || strings.Contains(fmt.Sprint(got), "reason") {
		t.Errorf("revoke: %d %v", status, got)
	}
}

// TestNativeReflection checks that reflection lists the service with all its message types.
func TestNativeReflection(t *testing.T) { virtual.Test(t, testNativeReflection) }

func testNativeReflection(t *testing.T) {
	r := run(t, testConfig(shortDir(t)))
	s, err := v1.NewServerReflectionClient(r.client.ActiveConnection()).
		ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(q *v1.ServerReflectionRequest) *v1.ServerReflectionResponse {
		t.Helper()
		if err := s.Send(q); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	list := ask(&v1.ServerReflectionRequest{
		MessageRequest: &v1.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService()
	if !slices.ContainsFunc(list, func(s *v1.ServiceResponse) bool {
		return s.Name == "leasehold.v1.LeaseService"
	}) {
		t.Errorf("services: %v", list)
	}
	files := ask(&v1.ServerReflectionRequest{
		MessageRequest: &v1.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "leasehold.v1.LeaseService",
		},
	})
	if n := len(files.GetFileDescriptorResponse().GetFileDescriptorProto()); n < 3 {
		t.Errorf("%d files: %v", n, files)
	}
}
