package cloudstack

import (
	"fmt"
	"strings"
)

const (
	providerIDPrefix = officialName + "://"
	// bareID is the provider ID that CloudStack's own controller wrote on every Node in versions 1.1.0 and 1.1.1. It names no instance.
	bareID = officialName
	// clusterAPIPrefix begins the IDs of the Cluster API and others: cloudstack:///<UUID>, cloudstack://<region>/<UUID>.
	clusterAPIPrefix = Name + "://"
)

// parseProviderID returns the virtual machine's ID in a provider ID of any form.
func parseProviderID(text string) (string, error) {
	id := text
	if rest, ok := strings.CutPrefix(text, providerIDPrefix); ok {
		id = strings.TrimPrefix(rest, "/")
	} else if rest, ok := strings.CutPrefix(text, clusterAPIPrefix); ok {
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

func namesInstance(providerID string) bool {
	return providerID != bareID && providerID != providerIDPrefix
}

// instanceKey returns the instance that a provider ID names. One with our prefix is ours even if malformed.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return id
	}
	if providerID == bareID || strings.HasPrefix(providerID, providerIDPrefix) || strings.HasPrefix(providerID, clusterAPIPrefix) {
		return providerID
	}
	return ""
}
