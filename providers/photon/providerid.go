package photon

import (
	"fmt"
	"regexp"
	"strings"
)

const providerIDPrefix = Name + "://"

var machineID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// parseProviderID returns the virtual machine's ID. The kubelet sets it from its own configuration; without that setting, the bare prefix
// names no machine.
func parseProviderID(text string) (string, error) {
	id, ok := strings.CutPrefix(text, providerIDPrefix)
	if !ok || !machineID.MatchString(id) {
		return "", fmt.Errorf("provider ID %q is not of the form %s<VM ID>", text, providerIDPrefix)
	}
	return id, nil
}
