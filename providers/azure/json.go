package azure

import (
	"slices"
)

// withoutAdded is a document as plan shows it: without the fields that Azure adds, which stay when a write leaves them out.
func withoutAdded(v any) any {
	switch v := v.(type) {
	case doc:
		part := doc{}
		for key, one := range v {
			if added := v["name"] != nil || key == "provisioningState"; added && isAdded(key) || isBackReference(key, one) {
				continue
			}
			part[key] = withoutAdded(one)
		}
		return part
	case []any:
		list := make([]any, len(v))
		for i, one := range v {
			list[i] = withoutAdded(one)
		}
		return list
	}
	return v
}

// isAdded reports whether Azure adds a field to documents and their parts, and no write contains it.
func isAdded(key string) bool {
	return slices.Contains([]string{"etag", "id", "provisioningState", "resourceGuid", "type"}, key)
}

// isBackReference reports whether a field lists, by their IDs alone, the rules or pools that refer to a part of a load balancer.
func isBackReference(key string, v any) bool {
	list, ok := v.([]any)
	return ok && slices.Contains([]string{"backendAddressPools", "loadBalancingRules"}, key) && !slices.ContainsFunc(list, func(one any) bool {
		return textOf(one, "name") != "" || textOf(one, "id") == ""
	})
}

func textOf(object any, key string) string {
	d, _ := object.(doc)
	text, _ := d[key].(string)
	return text
}
