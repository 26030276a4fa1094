package azure

import (
	"fmt"
	"regexp"
	"strings"
)

const providerIDPrefix = Name + "://"

const segment = `([A-Za-z0-9._()-]+)`

// machineForm is the form of provider IDs: a machine of a uniform scale set, or any other one.
var machineForm = regexp.MustCompile(`(?i)^azure:///subscriptions/` + segment + `/resourceGroups/` + segment + `/providers/Microsoft\.Compute/` +
	`(?:virtualMachineScaleSets/` + segment + `/virtualMachines/` + segment + `|virtualMachines/` + segment + `)$`)

// resourceForm is the form of all resources of Azure Resource Manager.
var resourceForm = regexp.MustCompile(`(?i)^azure:///subscriptions/.*/resourceGroups/.*/providers/.`)

// machineID names a machine: its resource ID in lower case, because Azure's answers differ in case.
type machineID string

// parseProviderID returns the machine of a provider ID, in whichever case it is written.
func parseProviderID(text string) (machineID, error) {
	m := machineForm.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("provider ID %q is not of the form %s/subscriptions/<ID>/resourceGroups/<name>/providers/Microsoft.Compute/"+
			"[virtualMachineScaleSets/<name>/]virtualMachines/<name>", text, providerIDPrefix)
	}
	path := "/subscriptions/" + m[1] + "/resourceGroups/" + m[2] + "/providers/Microsoft.Compute/"
	if m[5] != "" {
		return machineID(strings.ToLower(path + "virtualMachines/" + m[5])), nil
	}
	instance := m[4][strings.LastIndex(m[4], "_")+1:] // some tools write <set>_<instance>
	return machineID(strings.ToLower(path + "virtualMachineScaleSets/" + m[3] + "/virtualMachines/" + instance)), nil
}

// instanceKey implements registry.Provider.InstanceKey.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return string(id)
	}
	if strings.HasPrefix(providerID, providerIDPrefix) {
		return strings.ToLower(providerID)
	}
	return ""
}

// isOtherAzureResource reports whether a provider ID names an Azure resource other than a virtual machine.
func isOtherAzureResource(providerID string) bool {
	return resourceForm.MatchString(providerID) && !strings.Contains(strings.ToLower(providerID), "/providers/microsoft.compute/")
}

// uniform reports whether the machine is of a uniform scale set, and returns the set's resource ID.
func (id machineID) uniform() (set string, ok bool) {
	set, _, ok = strings.Cut(string(id), "/virtualmachines/")
	return set, ok && strings.Contains(set, "/virtualmachinescalesets/")
}

// canonicalMachineID returns a resource ID as provider IDs have it: in Azure's case, with a lower-case resource group.
func canonicalMachineID(id string) string {
	parts := strings.Split(id, "/")
	if len(parts) > 4 {
		parts[4] = strings.ToLower(parts[4])
		parts[3] = "resourceGroups"
	}
	return providerIDPrefix + strings.Join(parts, "/")
}

// sameID compares resource IDs, which are case-insensitive.
func sameID(a, b string) bool { return strings.EqualFold(a, b) }

// nameOf is the last part of a resource ID.
func nameOf(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// ownerOf is the ID of the resource that another one is a part of.
func ownerOf(id string) string {
	for range 2 {
		id = id[:max(0, strings.LastIndex(id, "/"))]
	}
	return id
}

// groupPath is the path of a resource group's resources of a provider, such as Microsoft.Network.
func groupPath(subscription, group, provider string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/" + provider
}

// networkPath is the path of a resource of the network in a resource group.
func (c *Config) networkPath(group, resource string) string {
	return groupPath(c.NetworkSubscription, group, "Microsoft.Network") + "/" + resource
}

func (c *Config) networkID() string {
	return c.networkPath(c.NetworkGroup, "virtualNetworks/"+c.Network)
}

func (c *Config) loadBalancerID(name string) string {
	return c.networkPath(c.LBGroup, "loadBalancers/"+name)
}

// groupOf is the resource group of an ID in lower case.
func groupOf(id string) string {
	_, rest, _ := strings.Cut(id, "/resourcegroups/")
	group, _, _ := strings.Cut(rest, "/")
	return group
}
