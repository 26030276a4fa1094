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

// elsewhereForm is that of machines which Azure Resource Manager lists and that are none of its own.
var elsewhereForm = regexp.MustCompile(`(?i)^azure:///subscriptions/.*/resourceGroups/.*/providers/.`)

// machineID names a machine: its resource ID in lower case, for Azure's answers differ in case.
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
	return elsewhereForm.MatchString(providerID) && !strings.Contains(strings.ToLower(providerID), "/providers/microsoft.compute/")
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

// sameID compares resource IDs, whose case says nothing.
func sameID(a, b string) bool { return strings.EqualFold(a, b) }

// nameOf is the last part of a resource ID, ownerOf that of which the resource is a part.
func nameOf(id string) string { return id[strings.LastIndex(id, "/")+1:] }

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
