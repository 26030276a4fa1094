package photon

import (
	"fmt"
	"regexp"
	"strings"
)

const providerIDPrefix = Name + "://"

var machineID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// parseProviderID returns the ID of the virtual machine in a provider ID. kubelet made it of a setting of its own; where that was not set,
// it is the bare prefix, which names no machine.
func parseProviderID(text string) (string, error) {
	id, ok := strings.CutPrefix(text, providerIDPrefix)
	if !ok || !machineID.MatchString(id) {
		return "", fmt.Errorf("provider ID %q is not of the form %s<VM ID>", text, providerIDPrefix)
	}
	return id, nil
}
