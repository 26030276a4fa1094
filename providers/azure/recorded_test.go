package azure

import (
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// recordedKind is how Azure answers about a kind of resources.
type recordedKind struct {
	Answers map[string]recordedAnswer `json:"answers"`
	Fields  map[string][]string       `json:"fields"`
}

type recordedAnswer struct {
	Headers []string `json:"headers"`
	Code    string   `json:"code"`
	Details []string `json:"details"`
}

// typesOf adds the type of every field of an answer, by its path.
func typesOf(v any, path string, types map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		types[path] = "object"
		for key, inner := range v {
			typesOf(inner, strings.TrimPrefix(path+"."+key, "."), types)
		}
	case []any:
		types[path] = "list"
		for _, inner := range v {
			typesOf(inner, path+"[]", types)
		}
	case string:
		types[path] = "text"
	case bool:
		types[path] = "flag"
	case float64:
		types[path] = "number"
	default:
		types[path] = "null"
	}
}

//go:embed testdata/recorded.yaml
var recordings []byte

// TestSimulatorAnswersAsRecorded: the simulator answers the calls of the recordings as Azure did: status, headers, codes, and every field
// of a resource with its type.
func TestSimulatorAnswersAsRecorded(t *testing.T) {
	t.Parallel()
	var recorded struct {
		Kinds    map[string]recordedKind `json:"kinds"`
		Provider map[string][]string     `json:"provider"`
		Used     []string                `json:"used"`
		LeftOut  map[string][]string     `json:"leftOut"`
	}
	require.NoError(t, yaml.Unmarshal(recordings, &recorded))
	require.Len(t, recorded.Kinds, len(recorded.Used)-1, "the description of a provider is no kind of resources")
	packages := slices.Concat(append(slices.Collect(maps.Values(recorded.LeftOut)), recorded.Used)...)
	slices.Sort(packages)
	assert.Len(t, slices.Compact(packages), 38, "of two clouds each: all 76 recordings are used, or it is said why not")
	t.Run("provider", func(t *testing.T) {
		t.Parallel()
		_, server := azuresim.New("", 0)
		p := &player{TB: t, server: server, version: zonesVersion, want: recordedKind{Answers: map[string]recordedAnswer{"GET one 200": {}}}}
		types := map[string]string{}
		typesOf(p.play(http.MethodGet, "one", "/subscriptions/"+azuresim.Subscription+"/providers/Microsoft.Compute", nil), "", types)
		for kindOf, paths := range recorded.Provider {
			for _, path := range paths {
				assert.Equal(t, kindOf, types[path], path)
			}
		}
	})
	for kind, want := range recorded.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			replay(t, kind, want)
		})
	}
}

// player makes the calls of a recording.
type player struct {
	testing.TB
	server  *simkit.Server
	version string
	want    recordedKind
	played  []string
}

// play makes a call and holds its answer to the recorded one.
func (p *player) play(method, what, path string, body any, header ...string) doc {
	p.Helper()
	data, err := json.Marshal(body)
	require.NoError(p, err)
	r := httptest.NewRequestWithContext(p.Context(), method, path+"?api-version="+p.version, strings.NewReader(string(data)))
	r.Header.Set("Authorization", "Bearer any")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.server.ServeHTTP(w, r)
	step := strings.Join([]string{method, what, http.StatusText(w.Code)}, " ")
	for key := range p.want.Answers {
		if parts := strings.Fields(key); parts[0] == method && parts[1] == what && parts[2] == statusText(w.Code) {
			step = key
		}
	}
	answer, known := p.want.Answers[step]
	require.True(p, known, "%s: Azure never answered so: %s", step, w.Body)
	p.played = append(p.played, step)
	for _, h := range answer.Headers {
		assert.NotEmpty(p, w.Header().Get(h), "%s: header %s", step, h)
	}
	var shown doc
	if w.Body.Len() > 0 {
		require.NoError(p, json.Unmarshal(w.Body.Bytes(), &shown))
	}
	assert.Equal(p, answer.Code, str(shown, "error", "code"), step)
	var details []string
	for _, d := range docs(shown, "error", "details") {
		details = append(details, str(d, "code"))
	}
	assert.Equal(p, answer.Details, details, step)
	return shown
}

func statusText(code int) string {
	data, _ := json.Marshal(code) // a number
	return string(data)
}

// recordedBodies are the request bodies of the recordings, by kind.
func recordedBodies() map[string]doc {
	subnet := doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", azuresim.Subnet)}
	nic := part("card", doc{"primary": true, "enableIPForwarding": true, "ipConfigurations": []any{part("config", doc{"subnet": subnet})}})
	return map[string]doc{
		"Microsoft.Network/loadBalancers": {"sku": doc{"name": "Standard", "tier": "Regional"}, "properties": doc{"frontendIPConfigurations": []any{
			part("front", doc{"publicIPAddress": doc{"id": pipID("public")}}),
		}}},
		"Microsoft.Network/networkInterfaces": {"properties": doc{"ipConfigurations": []any{part("config", doc{
			"privateIPAllocationMethod": "Dynamic", "subnet": subnet,
		})}}},
		"Microsoft.Network/virtualNetworks": {"properties": doc{
			"addressSpace": doc{"addressPrefixes": []any{"10.0.0.0/16"}}, "subnets": []any{part("subnet", doc{"addressPrefix": "10.0.0.0/24"})},
		}},
		"Microsoft.Network/loadBalancers/backendAddressPools": {"name": "resource", "properties": doc{}},
		"Microsoft.Network/virtualNetworks/subnets":           {"properties": doc{"addressPrefix": "10.1.0.0/24"}},
		"Microsoft.Network/publicIPPrefixes": {"sku": doc{"name": "Standard", "tier": "Regional"}, "properties": doc{
			"prefixLength": 31, "publicIPAddressVersion": "IPv4",
		}},
		"Microsoft.Network/privateLinkServices": {"properties": doc{
			"loadBalancerFrontendIpConfigurations": []any{reference("lb", "frontendIPConfigurations", "front")},
			"ipConfigurations":                     []any{part("config", doc{"primary": true, "privateIPAddressVersion": "IPv4", "subnet": subnet})},
		}},
		"Microsoft.Compute/virtualMachines": {"properties": doc{
			"hardwareProfile": doc{"vmSize": "Standard_D2s_v3"}, "osProfile": doc{"computerName": "sample-compute"},
			"networkProfile": doc{"networkInterfaces": []any{doc{"id": azuresim.ID("Microsoft.Network/networkInterfaces", "nic1")}}},
		}},
		"Microsoft.Compute/virtualMachineScaleSets": {"sku": doc{"name": "Standard_D2s_v3", "capacity": 1}, "properties": doc{
			"overprovision": false, "upgradePolicy": doc{"mode": "Manual"}, "virtualMachineProfile": doc{
				"osProfile": doc{"computerNamePrefix": "vmss"}, "networkProfile": doc{"networkInterfaceConfigurations": []any{nic}},
			},
		}},
		"Microsoft.Compute/virtualMachineScaleSets/virtualMachines": {"tags": doc{"key1": "value1"}},
	}
}

// recordedWorld is a simulator with what the recordings had before, and the ID of the resource that they are about.
func recordedWorld(kind string) (server *simkit.Server, id string) {
	sim, server := azuresim.New("", 0)
	sim.AddAddress("public")
	id = azuresim.ID(kind, "resource")
	switch kind {
	case "Microsoft.Network/virtualNetworks/subnets":
		id = azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", "resource")
	case "Microsoft.Network/privateLinkServices", "Microsoft.Network/loadBalancers/backendAddressPools":
		sim.LetLinksIn(azuresim.Subnet)
		sim.Leave(lbID("lb"), doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "properties": doc{
			"frontendIPConfigurations": []any{leftFront("front", "public")},
		}})
		if kind != "Microsoft.Network/privateLinkServices" {
			id = lbID("lb") + "/backendAddressPools/resource"
		}
	case "Microsoft.Compute/virtualMachineScaleSets/virtualMachines":
		id = strings.TrimPrefix(sim.AddInstance("vm"), "azure://")
	}
	return server, id
}

// replay makes the calls of the recording of a kind in their order.
func replay(t *testing.T, kind string, want recordedKind) {
	t.Helper()
	server, id := recordedWorld(kind)
	p := &player{TB: t, server: server, want: want, version: "2025-05-01"}
	if strings.HasPrefix(kind, "Microsoft.Compute/") {
		p.version = computeVersion
	}
	name := nameOf(id)
	listing := strings.TrimSuffix(id, "/"+name)
	body := recordedBodies()[kind]
	if body == nil {
		body = doc{}
	}
	body["location"] = azuresim.Location
	asked := func(method, what string) bool {
		return slices.ContainsFunc(sortedKeys(want.Answers), func(key string) bool { return strings.HasPrefix(key, method+" "+what) })
	}
	if asked(http.MethodPut, "one 201") {
		p.play(http.MethodPut, "one", id, body)
	}
	shown := p.play(http.MethodGet, "one", id, nil)
	if asked(http.MethodGet, "one 4") {
		p.play(http.MethodGet, "one", id+"notfound", nil)
	}
	if asked(http.MethodPut, "one 200") {
		p.play(http.MethodPut, "one", id, body)
	}
	if asked(http.MethodPut, "one 412") {
		p.play(http.MethodPut, "one", id, body, "If-Match", "invalid")
	}
	list := p.play(http.MethodGet, "listing", listing, nil)
	missing := strings.NewReplacer("/"+azuresim.Group+"/", "/notfound/", "/"+strings.ToLower(azuresim.Group)+"/", "/notfound/").Replace(listing)
	p.play(http.MethodGet, "listing", missing, nil)
	p.play(http.MethodDelete, "one", id, nil)
	for step := range want.Answers {
		assert.Contains(t, p.played, step, "of the recording")
	}
	for _, d := range []doc{shown, findID(docs(list, "value"), str(shown, "id"))} {
		types := map[string]string{}
		typesOf(d, "", types)
		for _, kindOf := range sortedKeys(want.Fields) {
			for _, path := range slices.Sorted(slices.Values(want.Fields[kindOf])) {
				assert.Equal(t, kindOf, types[path], path)
			}
		}
	}
}

func findID(list []doc, id string) doc {
	if i := slices.IndexFunc(list, func(d doc) bool { return sameID(str(d, "id"), id) }); i >= 0 {
		return list[i]
	}
	return nil
}
