package cloudstack

import (
	"fmt"
	"strings"
)

const (
	providerIDPrefix = officialName + "://"
	// bareID is the provider ID that CloudStack's own controller wrote on every Node in its versions 1.1.0 and 1.1.1. It names no instance.
	bareID = officialName
	// otherPrefix begins the IDs that other controllers and the Cluster API write: cloudstack:///<UUID>, cloudstack://<region>/<UUID>.
	otherPrefix = Name + "://"
)

// parseProviderID returns the ID of the virtual machine in a provider ID, in every form that a Node may carry.
func parseProviderID(text string) (string, error) {
	id := text
	if rest, ok := strings.CutPrefix(text, providerIDPrefix); ok {
		id = strings.TrimPrefix(rest, "/")
	} else if rest, ok := strings.CutPrefix(text, otherPrefix); ok {
		id = rest
		if _, last, found := strings.Cut(rest, "/"); found {
			id = last
		}
	}
	if !uuidForm.MatchString(id) {
		return "", fmt.Errorf("provider ID %q is not of the form %s<UUID>, such as %s123e4567-e89b-42d3-a456-426614174000", text, providerIDPrefix, providerIDPrefix)
	}
	return strings.ToLower(id), nil
}

// namesInstance reports whether a provider ID names a virtual machine.
func namesInstance(providerID string) bool {
	return providerID != bareID && providerID != providerIDPrefix
}

// instanceKey returns the key of the instance that a provider ID names. An ID that begins like ours is ours even if it names no instance.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return id
	}
	if providerID == bareID || strings.HasPrefix(providerID, providerIDPrefix) || strings.HasPrefix(providerID, otherPrefix) {
		return providerID
	}
	return ""
}
