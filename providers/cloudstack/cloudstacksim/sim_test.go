package cloudstacksim

import (
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignatures: what the SDK and an independent implementation sign alike is accepted, and nothing else.
func TestSignatures(t *testing.T) {
	assert.Equal(t, "lw++Zj7n7E4gIGdJNMuS+omxmIQ=", Sign(map[string]string{
		"algorithm": "roundrobin", "apiKey": "miVr6X7u6bN_sdahOBpjNejPgEsT35eXq", "cidrlist": "10.0.0.0/8,192.168.1.0/24",
		"command": "createLoadBalancerRule", "description": "a b*c+d", "expires": "2030-01-02T03:04:05Z",
		"name": "a224691befa864b07938cc86d948b99f-tcp-80", "openfirewall": "false", "privateport": "30080", "protocol": "tcp", "publicport": "80",
		"response": "json", "signatureversion": "3",
	}, "secretKEY123"))
	run(t, Options{}, func(t *testing.T, c *client) {
		c.do("listZones")
		c.post = true
		c.do("listZones")
		for what, change := range map[string]func(url.Values){
			"no signature":      func(v url.Values) { v.Del("signature") },
			"no key":            func(v url.Values) { v.Del("apiKey") },
			"another key":       func(v url.Values) { v.Set("apiKey", OtherKey) },
			"another parameter": func(v url.Values) { v.Set("name", "else") },
			"no end":            func(v url.Values) { v.Del("expires") },
		} {
			c.change = change
			status, outer, inner := c.send("listZones")
			assert.Equal(t, http.StatusUnauthorized, status, what)
			assert.Equal(t, "listzonesresponse", outer, what)
			assert.Equal(t, "unable to verify user credentials and/or request signature", inner["errortext"], what)
		}
		c.change = nil
		c.requireRefusal(codeUnauthorized, "", "listZones", "expires", "1999-01-02T03:04:05Z")
		c.sim.SetSecret("another")
		c.requireRefusal(codeUnauthorized, "", "listZones")
	})
}

// TestParameters: what is unknown, missing or of another type is refused.
func TestParameters(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		c.requireRefusal(codeUnsupported, "The API [listNothing] does not exist", "listNothing")
		c.requireRefusal(codeParam, "Unknown parameter", "listZones", "colour", "red")
		c.requireRefusal(codeParam, "missing parameter", "queryAsyncJobResult")
		c.requireRefusal(codeParam, "or entity does not exist", "listVirtualMachines", "id", "4f9b3b9e-7c11-4e0a-9c55-000000000000")
		c.requireRefusal(codeParam, "invalid value", "listVirtualMachines", "listall", "perhaps")
		c.requireRefusal(codeParam, "non permitted value", "listVirtualMachines", "details", "min,colour")
		c.requireRefusal(codeParam, "Specify either id or ids", "listVirtualMachines", "id", c.sim.AddVM(Spec{Name: "a"}), "ids", c.sim.AddVM(Spec{Name: "b"}))
		c.requireRefusal(codeParam, "max allowed length", "listNetworkACLLists", "name", string(make([]byte, 256)))
		assert.Equal(t, "external-cloudstack", Name)
	})
}

// TestRootAdminOwnsMachines: what CloudStack's own controller asks at its start needs the rights of root admins, and what it then asks
// without listall shows what its key owns.
func TestRootAdminOwnsMachines(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		c.sim.AddVM(Spec{Name: "node-1"})
		c.requireRefusal(codeUnsupported, "The API [listManagementServersMetrics] does not exist", "listManagementServersMetrics")
		require.NoError(t, c.sim.Actions()["root-admin"](nil))
		assert.NotEmpty(t, c.list("managementserver", "listManagementServersMetrics")[0]["version"])
		found := c.list("virtualmachine", "listVirtualMachines", "name", "node-1")
		require.Len(t, found, 1)
		assert.Equal(t, User, found[0]["account"])
		assert.NotEmpty(t, found[0]["hostname"], "which root admins alone are shown")
	})
}

// TestPages: a page and its size go together, and without them there is one page.
func TestPages(t *testing.T) {
	run(t, Options{PageSize: 2, Seed: 3}, func(t *testing.T, c *client) {
		for i := range 5 {
			c.sim.AddVM(Spec{Name: "n" + strconv.Itoa(i)})
		}
		answer := c.do("listVirtualMachines")
		assert.EqualValues(t, 5, answer["count"])
		assert.Len(t, answer["virtualmachine"], 2)
		names := map[any]bool{}
		for page := range 3 {
			for _, v := range c.list("virtualmachine", "listVirtualMachines", "page", strconv.Itoa(page+1), "pagesize", "2") {
				names[v["name"]] = true
			}
		}
		assert.Len(t, names, 5)
		assert.Equal(t, map[string]any{"count": 5.0}, c.do("listVirtualMachines", "page", "4", "pagesize", "2"))
		assert.Len(t, c.do("listVirtualMachines", "pagesize", "-1")["virtualmachine"], 5)
		c.requireRefusal(codeParam, `"page" parameter is required`, "listVirtualMachines", "pagesize", "2")
		c.requireRefusal(codeParam, `"pagesize" parameter is required`, "listVirtualMachines", "page", "1")
		c.requireRefusal(codeParam, "Page size can't exceed max allowed page size value: 2", "listVirtualMachines", "page", "1", "pagesize", "3")
		c.requireRefusal(codeParam, "Unlimited", "listVirtualMachines", "page", "1", "pagesize", "-1")
		assert.Empty(t, c.list("virtualmachine", "listVirtualMachines", "name", "nobody"))
	})
}

// TestRoles: a role holds back commands, and root admins have more than others.
func TestRoles(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		admin := c.withKeys(AdminKey, AdminSecret)
		c.requireRefusal(codeUnsupported, "does not exist or is not available", "listManagementServersMetrics")
		assert.Equal(t, V422, admin.only("managementserver", "listManagementServersMetrics")["version"])
		c.sim.Restrict(APIKey, "listVirtualMachines")
		status, outer, _ := c.send("listCapabilities")
		assert.Equal(t, []any{codeUnsupported, "errorresponse"}, []any{status, outer})
		c.do("listVirtualMachines")
		c.sim.Restrict(APIKey)
		c.do("listCapabilities")
		c.sim.AddVM(Spec{Name: "a"})
		c.sim.Edit(c.sim.List()[0].ID, func(v *VM) { v.State = "Destroyed" })
		assert.Empty(t, c.list("virtualmachine", "listVirtualMachines"))
		v := admin.only("virtualmachine", "listVirtualMachines", "listall", "true")
		assert.Equal(t, "hypervisor-3.example.net", v["hostname"])
		c.sim.Edit(v["id"].(string), func(v *VM) { v.State = "Running" })
		assert.NotContains(t, c.only("virtualmachine", "listVirtualMachines"), "hostname")
		assert.NotContains(t, c.sim.CloudConfig(c.url), AdminKey)
	})
}

// TestOwners: each account sees what it has, and a project's things only where the project is named.
func TestOwners(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		c.sim.AddVM(Spec{Name: "ours"})
		foreign := c.sim.AddVM(Spec{Name: "ours", Owner: c.sim.accountNamed(Other).id})
		shared := c.sim.AddVM(Spec{Name: "shared", Owner: ProjectID})
		admin, other := c.withKeys(AdminKey, AdminSecret), c.withKeys(OtherKey, OtherSecret)
		assert.Len(t, c.list("virtualmachine", "listVirtualMachines", "listall", "true"), 1)
		assert.Len(t, other.list("virtualmachine", "listVirtualMachines", "listall", "true"), 1)
		assert.Len(t, admin.list("virtualmachine", "listVirtualMachines", "listall", "true"), 2)
		assert.Empty(t, admin.list("virtualmachine", "listVirtualMachines"))
		assert.Empty(t, c.list("virtualmachine", "listVirtualMachines", "id", foreign))
		assert.Empty(t, c.list("virtualmachine", "listVirtualMachines", "id", shared))
		assert.Equal(t, ProjectName, c.only("virtualmachine", "listVirtualMachines", "projectid", ProjectID)["project"])
		assert.Len(t, c.list("virtualmachine", "listVirtualMachines", "projectid", "-1"), 1)
		other.requireRefusal(codePermission, "", "listVirtualMachines", "projectid", ProjectID)
		assert.Equal(t, ProjectID, c.only("project", "listProjects", "name", ProjectName)["id"])
		assert.Empty(t, other.list("project", "listProjects"))
		c.sim.Remove(shared)
		assert.Empty(t, c.list("virtualmachine", "listVirtualMachines", "id", shared), "the row of what is gone is still known")
	})
}

// TestDetails: fields come in groups, and a VNF appliance has one of objects.
func TestDetails(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		second := c.sim.AddNetwork(NetworkSpec{Name: "second"})
		c.sim.AddVM(Spec{Name: "v", Networks: []string{second, c.sim.SeedNetwork()}, Default: 1, IP6: true, VNF: true})
		v := c.only("virtualmachine", "listVirtualMachines", "details", "min,nics")
		assert.NotContains(t, v, "serviceofferingname")
		assert.NotContains(t, v, "vnfnics")
		nics, _ := v["nic"].([]any)
		require.Len(t, nics, 2)
		for i, isDefault := range []bool{false, true} {
			nic, _ := nics[i].(map[string]any)
			assert.Equal(t, isDefault, nic["isdefault"])
			assert.Contains(t, nic, "ip6address")
		}
		assert.Equal(t, "Small Instance", c.only("virtualmachine", "listVirtualMachines", "details", "servoff")["serviceofferingname"])
		assert.Contains(t, c.only("virtualmachine", "listVirtualMachines"), "vnfnics")
		assert.Len(t, c.list("virtualmachine", "listVirtualMachines", "networkid", second), 1)
		assert.EqualValues(t, 1, c.do("listVirtualMachines", "retrieveonlyresourcecount", "true")["count"])
	})
}

// TestJobs: jobs on one network wait for each other, show on what they work on, and are the business of the account that began them.
func TestJobs(t *testing.T) {
	run(t, Options{Activation: 10 * time.Second, Seed: 5}, func(t *testing.T, c *client) {
		first := c.do("associateIpAddress", "networkid", c.sim.SeedNetwork())
		second := c.do("associateIpAddress", "networkid", c.sim.SeedNetwork())
		a := c.only("publicipaddress", "listPublicIpAddresses", "id", first["id"].(string))
		assert.Equal(t, stateAllocating, a["state"])
		assert.Equal(t, first["jobid"], a["jobid"])
		assert.NotContains(t, a, "associatednetworkid")
		c.requireRefusal(codeParam, "invalid IP address id specified", "createLoadBalancerRule", "algorithm", "source", "name", "x", "privateport", "1",
			"publicport", "2", "publicipid", first["id"].(string), "networkid", c.sim.SeedNetwork())
		begun := time.Now()
		status, result := c.ended(second["jobid"])
		assert.Equal(t, jobDone, status)
		assert.Contains(t, result, "ipaddress")
		assert.GreaterOrEqual(t, time.Since(begun), 10*time.Second, "two jobs of five seconds at least, one after the other")
		assert.EqualValues(t, jobDone, c.do("queryAsyncJobResult", "jobid", first["jobid"].(string))["jobstatus"])
		c.withKeys(OtherKey, OtherSecret).requireRefusal(codePermission, "", "queryAsyncJobResult", "jobid", first["jobid"].(string))
	})
}

// TestJobsThatFail: a job that fails answers with success and says so inside; what its create phase made goes.
func TestJobsThatFail(t *testing.T) {
	run(t, Options{Activation: time.Second}, func(t *testing.T, c *client) {
		c.sim.FailJobs(Failure{Command: "associateIpAddress", Code: codeInternal, Text: "the router is down"})
		c.failed(codeInternal, "the router is down", "associateIpAddress", "networkid", c.sim.SeedNetwork())
		assert.Len(t, c.list("publicipaddress", "listPublicIpAddresses"), 1, "that of source NAT alone")
		c.sim.HoldJobs(true)
		held := c.do("associateIpAddress", "networkid", c.sim.SeedNetwork())
		time.Sleep(time.Hour)
		assert.EqualValues(t, jobPending, c.do("queryAsyncJobResult", "jobid", held["jobid"].(string))["jobstatus"])
		assert.Equal(t, 1, c.sim.PendingJobs())
		c.sim.HoldJobs(false)
		status, _ := c.ended(held["jobid"])
		assert.Equal(t, jobDone, status)
		c.sim.FailJobs(Failure{Command: "disassociateIpAddress", Code: codeInternal, Text: "timed out", After: true})
		c.failed(codeInternal, "timed out", "disassociateIpAddress", "id", held["id"].(string))
		assert.Len(t, c.list("publicipaddress", "listPublicIpAddresses"), 1, "it was done all the same")
	})
}

// TestLimit: a server that throttles answers 429 and says nothing of when to come back.
func TestLimit(t *testing.T) {
	run(t, Options{}, func(t *testing.T, c *client) {
		c.sim.SetLimit(2, time.Hour)
		capability, _ := c.do("listCapabilities")["capability"].(map[string]any)
		assert.EqualValues(t, 2, capability["apilimitmax"])
		c.do("listZones")
		c.requireRefusal(codeLimit, "account api limit", "listZones")
		c.withKeys(OtherKey, OtherSecret).do("listZones")
	})
}
