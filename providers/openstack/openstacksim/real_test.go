package openstacksim

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	// recordFrom names the seed.json of a real Octavia, whose answers are recorded into recorded:
	//
	// The environment also has the address of Octavia's API, the process group of its worker, and what it is:
	//
	//	ANYCCM_TEST_OCTAVIA_URL=http://127.0.0.1:9876 ANYCCM_TEST_OCTAVIA_WORKER=4711 ANYCCM_TEST_OCTAVIA="Octavia 11.0.0" \
	//	ANYCCM_TEST_OPENSTACK_SEED=seed.json go test ./providers/openstack/openstacksim -run TestAsOctavia -count=1
	recordFrom = "ANYCCM_TEST_OPENSTACK_SEED"
	recorded   = "testdata/octavia.json"
)

//go:embed testdata/octavia.json
var octavia []byte

// moment holds the status of a load balancer and each of its parts, and whether its time of change is null, unchanged since the change, or
// later.
type moment map[string]string

// happening is one change, with what shows right after the answer and what shows when Octavia rests.
type happening struct {
	Change string `json:"change"`
	Status int    `json:"status"`
	// Message is that of a refusal.
	Message string `json:"message,omitempty"`
	Begins  moment `json:"begins"`
	Rests   moment `json:"rests"`
}

// recording is a transcript of a real Octavia.
type recording struct {
	Service string      `json:"service"`
	Changes []happening `json:"changes"`
}

// TestAsOctavia: of everything that the program does, statuses and times of change are those that a real Octavia shows.
func TestAsOctavia(t *testing.T) { //nolint:paralleltest // with a real Octavia it takes its time
	text := octavia
	if path := os.Getenv(recordFrom); path != "" {
		text = record(t, path)
	}
	var real recording
	require.NoError(t, json.Unmarshal(text, &real))
	require.Greater(t, len(real.Changes), 10)
	synctest.Test(t, func(t *testing.T) {
		sim, server := New(Options{Activation: 2 * time.Second})
		network := simkit.NewNetwork()
		url := network.Serve(t, server)
		b := &bystander{
			t: t, client: &http.Client{Transport: &http.Transport{DialContext: network.Dial}}, octavia: url + loadBalancerPath,
			token:  simToken(t, url, network),
			subnet: sim.Networks()[1].Subnets[0], pause: func() {}, resume: func() {},
		}
		simulated := b.life()
		require.Len(t, simulated, len(real.Changes))
		for i, want := range real.Changes {
			assert.Equal(t, want, simulated[i], "%s; first what a real Octavia shows", want.Change)
		}
	})
}

// simToken logs in at the simulator.
func simToken(t *testing.T, url string, network *simkit.Network) string {
	t.Helper()
	return login(t, &http.Client{Transport: &http.Transport{DialContext: network.Dial}}, url+identityPath+"/v3",
		map[string]any{"name": User, "password": Password, "domain": map[string]any{"name": Domain}}, map[string]any{"id": Project})
}

// login returns a token.
func login(t *testing.T, client *http.Client, auth string, user, project map[string]any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{"user": user}},
		"scope":    map[string]any{"project": project},
	}})
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, auth+"/auth/tokens", bytes.NewReader(text))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	return answer.Header.Get("X-Subject-Token")
}

// record asks a real Octavia, and returns what it wrote of it.
func record(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var seed struct {
		AuthURL string `json:"auth_url"`
		Name    string `json:"username"`
		Pass    string `json:"password"`
		Tenant  string `json:"tenant_name"`
		Subnet  string `json:"subnet_id"`
	}
	require.NoError(t, json.Unmarshal(text, &seed))
	domain := map[string]any{"id": "default"}
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext}}
	b := &bystander{
		t: t, client: client, octavia: os.Getenv("ANYCCM_TEST_OCTAVIA_URL"), subnet: seed.Subnet,
		token: login(t, client, seed.AuthURL, map[string]any{"name": seed.Name, "password": seed.Pass, "domain": domain},
			map[string]any{"name": seed.Tenant, "domain": domain}),
	}
	signal := func(name string) func() {
		return func() {
			require.NoError(t, exec.CommandContext(context.WithoutCancel(t.Context()), "kill", "-"+name, "--", "-"+os.Getenv("ANYCCM_TEST_OCTAVIA_WORKER")).Run())
		}
	}
	b.pause, b.resume = signal("STOP"), signal("CONT")
	defer b.resume()
	out, err := json.MarshalIndent(recording{Service: os.Getenv("ANYCCM_TEST_OCTAVIA"), Changes: b.life()}, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(recorded), 0o755))
	require.NoError(t, os.WriteFile(recorded, append(out, '\n'), 0o600))
	return out
}

// bystander makes changes at an Octavia and looks on.
type bystander struct {
	t       *testing.T
	client  *http.Client
	octavia string
	token   string
	subnet  string

	changes []happening
	// pause stops Octavia's work, so that all that a look shows is of one time, and resume lets it go on.
	pause, resume func()
	// lb is the load balancer, ids are its parts by name.
	lb  string
	ids map[string]string
}

func (b *bystander) call(method, path string, body any) (int, map[string]any) {
	t := b.t
	t.Helper()
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, b.octavia+"/v2.0/lbaas/"+path, content)
	require.NoError(t, err)
	r.Header.Set("X-Auth-Token", b.token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := b.client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	told := map[string]any{}
	if len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, &told), "%s", text)
	}
	return answer.StatusCode, told
}

// look returns the present statuses and times of change.
func (b *bystander) look() (status, updated map[string]string) {
	status, updated = map[string]string{}, map[string]string{}
	code, lb := b.call(http.MethodGet, "loadbalancers/"+b.lb, nil)
	if code == http.StatusNotFound {
		return status, updated
	}
	see := func(name string, object any) {
		o, _ := object.(map[string]any)
		status[name], updated[name] = fmt.Sprint(o["provisioning_status"]), fmt.Sprint(o["updated_at"])
		b.ids[name] = fmt.Sprint(o["id"])
	}
	see("load balancer", lb["loadbalancer"])
	each := func(path, key string, do func(map[string]any)) {
		_, told := b.call(http.MethodGet, path, nil)
		list, _ := told[key].([]any)
		for _, one := range list {
			o, _ := one.(map[string]any)
			do(o)
		}
	}
	each("listeners?loadbalancer_id="+b.lb, "listeners", func(l map[string]any) { see("listener "+fmt.Sprint(l["name"]), l) })
	each("pools?loadbalancer_id="+b.lb, "pools", func(p map[string]any) {
		see("pool "+fmt.Sprint(p["name"]), p)
		each(fmt.Sprintf("pools/%v/members", p["id"]), "members", func(m map[string]any) {
			see(fmt.Sprintf("member %v of %v", m["name"], p["name"]), m)
		})
	})
	each("healthmonitors", "healthmonitors", func(m map[string]any) { see("monitor "+fmt.Sprint(m["name"]), m) })
	return status, updated
}

// compared tells times of change by what they were before.
func compared(status, updated, before map[string]string) moment {
	m := moment{}
	for name, s := range status {
		text := "later"
		switch was, known := before[name]; {
		case updated[name] == "<nil>":
			text = "null"
		case known && was == updated[name]:
			text = "as before"
		}
		m[name] = s + ", " + text
	}
	return m
}

var anyID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// change makes one change, and looks right after the answer and when Octavia rests. Times are whole seconds.
func (b *bystander) change(what, method, path string, body any) map[string]any {
	b.t.Helper()
	var before map[string]string
	if b.lb != "" {
		_, before = b.look()
	}
	b.wait(1500 * time.Millisecond)
	b.pause()
	code, told := b.call(method, path, body)
	h := happening{Change: what, Status: code}
	if text, _ := told["faultstring"].(string); code >= http.StatusBadRequest {
		h.Message = anyID.ReplaceAllString(text, "{id}")
	}
	if lb, _ := told["loadbalancer"].(map[string]any); b.lb == "" {
		b.lb = fmt.Sprint(lb["id"])
	}
	status, updated := b.look()
	h.Begins = compared(status, updated, before)
	b.resume()
	for strings.HasPrefix(status["load balancer"], "PENDING") {
		b.wait(300 * time.Millisecond)
		status, updated = b.look()
	}
	h.Rests = compared(status, updated, before)
	b.changes = append(b.changes, h)
	return told
}

func (b *bystander) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// life makes every kind of change that the program makes.
func (b *bystander) life() []happening {
	b.ids = map[string]string{}
	member := func(i int) map[string]any {
		return map[string]any{"name": fmt.Sprintf("m%d", i), "address": fmt.Sprintf("10.0.0.%d", 100+i), "protocol_port": 30080}
	}
	monitor := func(more map[string]any) map[string]any {
		all := map[string]any{"name": "check", "delay": 5, "timeout": 3, "max_retries": 1}
		maps.Copy(all, more)
		return all
	}
	b.change("a load balancer with all its parts", http.MethodPost, "loadbalancers", map[string]any{"loadbalancer": map[string]any{
		"name": "as-octavia", "vip_subnet_id": b.subnet, "provider": "amphora",
		"listeners": []any{map[string]any{"name": "web", "protocol": "TCP", "protocol_port": 80, "default_pool": map[string]any{
			"name": "web", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": []any{member(1), member(2)},
			"healthmonitor": monitor(map[string]any{"type": "TCP"}),
		}}},
	}})
	pool := "pools/" + b.ids["pool web"]
	members := func(numbers ...int) map[string]any {
		list := []any{}
		for _, n := range numbers {
			list = append(list, member(n))
		}
		return map[string]any{"members": list}
	}
	b.change("a batch adds a member", http.MethodPut, pool+"/members", members(1, 2, 3))
	b.change("a batch takes a member away", http.MethodPut, pool+"/members", members(1, 2))
	b.change("a batch that changes nothing", http.MethodPut, pool+"/members", members(1, 2))
	b.change("one member is added", http.MethodPost, pool+"/members", map[string]any{"member": member(4)})
	b.change("one member is deleted", http.MethodDelete, pool+"/members/"+b.ids["member m4 of web"], nil)
	b.change("a listener is added", http.MethodPost, "listeners", map[string]any{"listener": map[string]any{
		"name": "more", "protocol": "TCP", "protocol_port": 8443, "loadbalancer_id": b.lb,
	}})
	b.change("a pool is added", http.MethodPost, "pools", map[string]any{"pool": map[string]any{
		"name": "more", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "listener_id": b.ids["listener more"],
	}})
	more := "pools/" + b.ids["pool more"]
	b.change("a batch fills a pool", http.MethodPut, more+"/members", members(1, 2))
	b.change("a monitor is added", http.MethodPost, "healthmonitors", map[string]any{
		"healthmonitor": map[string]any{"name": "other", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "pool_id": b.ids["pool more"]},
	})
	b.change("a monitor is changed", http.MethodPut, "healthmonitors/"+b.ids["monitor other"], map[string]any{"healthmonitor": map[string]any{"delay": 7}})
	b.change("a listener is changed", http.MethodPut, "listeners/"+b.ids["listener more"], map[string]any{"listener": map[string]any{"connection_limit": 100}})
	b.change("a pool is changed", http.MethodPut, more, map[string]any{"pool": map[string]any{"lb_algorithm": "LEAST_CONNECTIONS"}})
	b.change("the tags are changed", http.MethodPut, "loadbalancers/"+b.lb, map[string]any{"loadbalancer": map[string]any{"tags": []string{"one"}}})
	b.change("a monitor is deleted", http.MethodDelete, "healthmonitors/"+b.ids["monitor other"], nil)
	b.change("a pool is deleted", http.MethodDelete, more, nil)
	b.change("a listener is deleted", http.MethodDelete, "listeners/"+b.ids["listener more"], nil)
	b.change("deletion without its parts", http.MethodDelete, "loadbalancers/"+b.lb, nil)
	b.whileBusy()
	b.change("deletion with its parts", http.MethodDelete, "loadbalancers/"+b.lb+"?cascade=true", nil)
	return b.changes
}

// whileBusy asks for changes while Octavia works on one.
func (b *bystander) whileBusy() {
	tags := map[string]any{"loadbalancer": map[string]any{"tags": []string{"two"}}}
	code, _ := b.call(http.MethodPut, "loadbalancers/"+b.lb, tags)
	require.Equal(b.t, http.StatusOK, code)
	for _, one := range []struct {
		what, method, path string
		body               any
	}{
		{"another change while busy", http.MethodPut, "loadbalancers/" + b.lb, tags},
		{"deletion while busy", http.MethodDelete, "loadbalancers/" + b.lb + "?cascade=true", nil},
		{"a listener while busy", http.MethodPut, "listeners/" + b.ids["listener web"], map[string]any{"listener": map[string]any{"connection_limit": 7}}},
	} {
		code, told := b.call(one.method, one.path, one.body)
		text, _ := told["faultstring"].(string)
		b.changes = append(b.changes, happening{Change: one.what, Status: code, Message: anyID.ReplaceAllString(text, "{id}")})
	}
	for busy := true; busy; {
		b.wait(300 * time.Millisecond)
		status, _ := b.look()
		busy = strings.HasPrefix(status["load balancer"], "PENDING")
	}
}
