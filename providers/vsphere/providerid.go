package vsphere

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const providerIDPrefix = Name + "://"

var validUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// parseProviderID returns the ID of the instance in a provider ID.
func parseProviderID(text string) (string, error) {
	rest, ok := strings.CutPrefix(text, providerIDPrefix)
	id := canonicalUUID(rest)
	if !ok || id == "" {
		return "", fmt.Errorf("provider ID %q is not of the form %s<UUID>, such as %s422e4956-ad22-1139-6d72-59cc8f26bc90", text, providerIDPrefix,
			providerIDPrefix)
	}
	return id, nil
}

// instanceKey returns the key of the instance that a provider ID names; the prefix may be missing. An ID with the prefix is ours even if it
// names no instance.
func instanceKey(providerID string) string {
	rest, ours := strings.CutPrefix(providerID, providerIDPrefix)
	if key := canonicalUUID(rest); key != "" || !ours {
		return key
	}
	return providerID
}

// canonicalUUID returns the canonical form of a UUID in either byte order: on some guests the reported order differs from vCenter's. It is
// "" for other text.
func canonicalUUID(text string) string {
	id := strings.ToLower(strings.TrimSpace(text))
	if !validUUID.MatchString(id) || strings.Trim(id, "0-") == "" {
		return ""
	}
	return min(id, swapBytes(id))
}

// swapBytes returns a UUID with the bytes of its first three groups in reverse.
func swapBytes(id string) string {
	groups := strings.SplitN(id, "-", 4)
	for i, g := range groups[:3] {
		bytes, _ := hex.DecodeString(g) // the caller has matched validUUID
		slices.Reverse(bytes)
		groups[i] = hex.EncodeToString(bytes)
	}
	return strings.Join(groups, "-")
}
