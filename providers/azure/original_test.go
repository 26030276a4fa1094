package azure

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// request makes a call as Azure's own controller does, and returns the answer.
func request(t testing.TB, server *simkit.Server, method, path string, body any, status int) doc {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(string(data)))
	r.Header.Set("Authorization", "Bearer any")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	require.Equal(t, status, w.Code, "%s %s: %s", method, path, w.Body)
	var answer doc
	if w.Body.Len() > 0 {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	}
	return answer
}

// internalBody is the load balancer that Azure's own controller writes for an internal Service: a subnet by ID and name, and no address.
func internalBody(frontend, subnet string) doc {
	return doc{"location": azuresim.Location, "name": "kubernetes-internal", "sku": doc{"name": "Standard"}, "properties": doc{
		"frontendIPConfigurations": []any{doc{"name": frontend, "zones": []any{"1", "2", "3"}, "properties": doc{
			"privateIPAllocationMethod": "Dynamic",
			"subnet":                    doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", subnet), "name": subnet},
		}}},
		"backendAddressPools": []any{doc{"name": "kubernetes", "properties": doc{}}},
	}}
}

// The API versions of Azure's own controller.
const (
	networkQuery = "?api-version=2025-05-01"
	computeQuery = "?api-version=" + computeVersion
)

// TestSimulatorServesAzuresController: the simulator takes the sequences of requests that Azure's own controller sends.
func TestSimulatorServesAzuresController(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, lb string){
		"an internal frontend in a subnet": testInternalFrontend,
		"a pool of addresses":              testPoolOfAddresses,
		"a node by its computer name":      testComputerNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lbID("kubernetes-internal"))
		})
	}
}

// testInternalFrontend writes internal frontends, whose addresses are of the subnet and stay with their names.
func testInternalFrontend(t *testing.T, lb string) {
	t.Helper()
	addressOf := func(answer doc) string {
		front := docs(answer, "properties", "frontendIPConfigurations")[0]
		assert.Equal(t, []string{"id"}, sortedKeys(front["properties"].(doc)["subnet"].(doc)), "answers name a subnet by its ID alone")
		return str(front, "properties", "privateIPAddress")
	}
	sim, server := azuresim.New("", 0)
	sim.AddSubnet("apps", "10.241.7.8/29")
	answer := request(t, server, http.MethodPut, lb+networkQuery, internalBody("a", "apps"), http.StatusCreated)
	assert.Equal(t, "10.241.7.12", addressOf(answer), "the first four of a subnet are Azure's")
	same := request(t, server, http.MethodPut, lb+networkQuery, internalBody("a", "apps"), http.StatusOK)
	assert.Equal(t, "10.241.7.12", addressOf(same), "a frontend that stays has its address")
	other := request(t, server, http.MethodPut, lb+networkQuery, internalBody("b", "apps"), http.StatusOK)
	assert.Equal(t, "10.241.7.13", addressOf(other), "one of another name has another")
	request(t, server, http.MethodPut, lb+networkQuery, internalBody("c", "apps"), http.StatusOK)
	full := request(t, server, http.MethodPut, lb+networkQuery, internalBody("d", "apps"), http.StatusBadRequest)
	assert.Equal(t, "SubnetIsFull", str(full, "error", "code"))
	large := request(t, server, http.MethodPut, lb+networkQuery, internalBody("e", azuresim.Subnet), http.StatusOK)
	assert.Regexp(t, `^10\.240\.`, addressOf(large))
	kept := internalBody("f", azuresim.Subnet)
	front := docs(kept, "properties", "frontendIPConfigurations")[0]["properties"].(doc)
	front["privateIPAllocationMethod"], front["privateIPAddress"] = "Static", addressOf(large)
	moved := request(t, server, http.MethodPut, lb+networkQuery, kept, http.StatusOK)
	assert.Equal(t, addressOf(large), addressOf(moved), "the address of the status is asked for under another name")
}

// testPoolOfAddresses writes a pool by itself.
func testPoolOfAddresses(t *testing.T, lb string) {
	t.Helper()
	_, server := azuresim.New("", 0)
	request(t, server, http.MethodPut, lb+networkQuery, internalBody("a", azuresim.Subnet), http.StatusCreated)
	pool := lb + "/backendAddressPools/kubernetes"
	have := request(t, server, http.MethodGet, pool+networkQuery, nil, http.StatusOK)
	assert.Empty(t, docs(have, "properties", "loadBalancerBackendAddresses"))
	members := func(ips ...string) doc {
		var list []any
		for i, ip := range ips {
			list = append(list, doc{"name": fmt.Sprint("node-", i), "properties": doc{"ipAddress": ip}})
		}
		return doc{"name": "kubernetes", "id": pool, "properties": doc{
			"virtualNetwork": doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network)}, "loadBalancerBackendAddresses": list,
		}}
	}
	for _, ips := range [][]string{{"10.240.0.5", "10.240.0.6"}, {"10.240.0.6"}} {
		request(t, server, http.MethodPut, pool+networkQuery, members(ips...), http.StatusOK)
		var got []string
		for _, a := range docs(request(t, server, http.MethodGet, lb+networkQuery, nil, http.StatusOK)["properties"].(doc)["backendAddressPools"].([]any)[0],
			"properties", "loadBalancerBackendAddresses") {
			got = append(got, str(a, "properties", "ipAddress"))
		}
		assert.Equal(t, ips, got, "the load balancer shows what its pool was made")
	}
	without := members("10.240.0.6")
	delete(without["properties"].(doc), "virtualNetwork")
	request(t, server, http.MethodPut, pool+networkQuery, without, http.StatusBadRequest)
	request(t, server, http.MethodDelete, pool+networkQuery, nil, http.StatusAccepted)
	request(t, server, http.MethodGet, pool+networkQuery, nil, http.StatusNotFound)
	request(t, server, http.MethodDelete, pool+networkQuery, nil, http.StatusNoContent)
}

// testComputerNames finds a node by the prefix of its scale set.
func testComputerNames(t *testing.T, _ string) {
	t.Helper()
	sim, server := azuresim.New("", 0)
	sim.AddScaleSet("pool2", "Uniform", "aks-pool2-", nil)
	names, err := sim.ScaleOut("pool2", 2)
	require.NoError(t, err)
	prefixes := map[string]string{}
	for _, set := range docs(request(t, server, http.MethodGet, azuresim.ID("Microsoft.Compute/virtualMachineScaleSets", "")+computeQuery, nil, http.StatusOK), "value") {
		prefixes[str(set, "properties", "virtualMachineProfile", "osProfile", "computerNamePrefix")] = str(set, "name")
	}
	found := map[string]bool{}
	for _, name := range names {
		set := prefixes[name[:len(name)-6]]
		require.Equal(t, "pool2", set, "%s: all but six characters are the prefix of its set", name)
		machines := azuresim.ID("Microsoft.Compute/virtualMachineScaleSets", set, "virtualMachines")
		for _, m := range docs(request(t, server, http.MethodGet, machines+computeQuery+"&$expand=instanceView", nil, http.StatusOK), "value") {
			found[str(m, "properties", "osProfile", "computerName")] = true
		}
	}
	for _, name := range names {
		assert.True(t, found[name], name)
	}
}
