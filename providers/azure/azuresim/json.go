package azuresim

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
)

// clone is a copy that shares nothing, with the types that JSON has.
func clone[T any](v T) T {
	copied, _ := jsondoc.CloneValue(v).(T) // nil stays nil
	return copied
}

// withRenamedField replaces a text everywhere in a document.
func withRenamedField(o object, from, to string) object {
	var out object
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(encode(o)), from, to)), &out); err != nil {
		panic(err) // made of JSON
	}
	return out
}

// follow follows a path of keys.
func follow(v any, path ...string) any {
	for _, key := range path {
		o, ok := v.(object)
		if !ok {
			return nil
		}
		v = o[key]
	}
	return v
}

func text(v any, path ...string) string {
	s, _ := follow(v, path...).(string)
	return s
}

func number(v any, path ...string) int {
	switch n := follow(v, path...).(type) {
	case float64:
		return int(n)
	case int:
		return n
	}
	return 0
}

func items(v any, path ...string) []object {
	list, _ := follow(v, path...).([]any)
	var out []object
	for _, i := range list {
		if o, ok := i.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

// anyOf are objects as an answer holds them.
func anyOf(objects []object) []any {
	out := make([]any, len(objects))
	for i, o := range objects {
		out[i] = o
	}
	return out
}

func strs(v any, path ...string) []string {
	list, _ := follow(v, path...).([]any)
	var out []string
	for _, i := range list {
		if s, ok := i.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func properties(r *resource) any {
	if r == nil {
		return nil
	}
	return r.doc["properties"]
}

// findByName finds an item of a list by its name.
func findByName(list []object, name string) object {
	if i := slices.IndexFunc(list, func(o object) bool { return strings.EqualFold(text(o, "name"), name) }); i >= 0 {
		return list[i]
	}
	return nil
}

// ensure returns the list at a key, which answers have even where it is empty.
func ensureList(o object, keys ...string) {
	for _, key := range keys {
		if o[key] == nil {
			o[key] = []any{}
		}
	}
}

// propertiesOf are the properties of a resource, which it has from then on.
func propertiesOf(o object) object {
	props, ok := o["properties"].(object)
	if !ok {
		props = object{}
		o["properties"] = props
	}
	return props
}

// legal refuses properties that the API does not have; shared are the fields that have the same members wherever they are. A field that is
// stored already is one of a newer version.
func legal(shared map[string]fields, known fields, asked, stored any, path string) *failure {
	if kindOfValue(asked) == "value" && (known != nil || kindOfValue(stored) == "object" || kindOfValue(stored) == "list") {
		return invalid("InvalidRequestFormat", "Cannot parse the request. The value at path '%s' is of another kind.", path)
	}
	if known == nil {
		return nil
	}
	switch v := asked.(type) {
	case object:
		for key, value := range v {
			inner, ok := known[key]
			if !ok && follow(stored, key) == nil {
				return invalid("InvalidRequestFormat", "Cannot parse the request. Could not find member '%s' on object at path '%s'.", key, path)
			}
			if inner == nil {
				inner = shared[key]
			}
			if f := legal(shared, inner, value, follow(stored, key), path+"."+key); f != nil {
				return f
			}
		}
	case []any:
		for _, value := range v {
			if f := legal(shared, known, value, sameName(stored, value), path+"[]"); f != nil {
				return f
			}
		}
	}
	return nil
}

// kindOfValue returns the kind of a JSON value: an object, a list, another value or nothing.
func kindOfValue(v any) string {
	switch v.(type) {
	case nil:
		return ""
	case object:
		return "object"
	case []any:
		return "list"
	}
	return "value"
}

// sameName finds the stored item of the name that an asked one has.
func sameName(stored, asked any) any {
	list, _ := stored.([]any)
	for _, s := range list {
		if text(s, "name") != "" && strings.EqualFold(text(s, "name"), text(asked, "name")) {
			return s
		}
	}
	return nil
}

// fields are the legal members of an object; nil means that anything goes.
type fields map[string]fields

func members(names string) fields {
	f := fields{}
	for name := range strings.FieldsSeq(names) {
		f[name] = nil
	}
	return f
}

func (f fields) set(key string, inner fields) fields {
	f[key] = inner
	return f
}

// sub are the members of an item that is a resource of its own inside another one.
func sub(names string) fields {
	return members("name id etag type zones").set("properties", members(names+" provisioningState"))
}

// nestedFields returns fields with the same members everywhere: references and groups of settings.
func nestedFields() map[string]fields {
	inner := map[string]fields{
		"hardwareProfile": members("vmSize vmSizeProperties"), "ipTags": members("ipTagType tag"), "ddosSettings": members("protectionMode ddosProtectionPlan"),
		"visibility": members("subscriptions"), "autoApproval": members("subscriptions"),
		"dnsSettings": members("dnsServers appliedDnsServers internalDnsNameLabel internalFqdn internalDomainNameSuffix " +
			"domainNameLabel domainNameLabelScope fqdn reverseFqdn"),
	}
	for name := range strings.FieldsSeq("subnet publicIPAddress publicIPPrefix frontendIPConfiguration backendAddressPool backendAddressPools probe virtualNetwork " +
		"networkSecurityGroup networkInterfaceIPConfiguration loadBalancerBackendAddressPools loadBalancerFrontendIpConfigurations") {
		inner[name] = members("id")
	}
	inner["loadBalancerBackendAddresses"] = members("name").set("properties", members("ipAddress virtualNetwork subnet networkInterfaceIPConfiguration adminState"))
	inner["delegations"] = members("name id etag type").set("properties", members("serviceName actions provisioningState"))
	return inner
}
