package portable

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// WithDefaults adds default annotations to a Service, and returns those that were added. Any annotation of the Service about the same
// setting has precedence: the cloud's own over a portable default, and a portable one over a default of the cloud's own. An empty portable
// annotation does not count, so that a template without a value does not make public what is internal by default.
func WithDefaults(cloud Cloud, service *v1.Service, defaults map[string]string) (with *v1.Service, added map[string]string) {
	for key, value := range defaults {
		own, present := service.Annotations[key]
		if (present && (own != "" || !isPortable(key))) || isSetOtherwise(cloud, service.Annotations, key) {
			continue
		}
		if added == nil {
			added = map[string]string{}
		}
		added[key] = value
	}
	if added == nil {
		return service, nil
	}
	with = service.DeepCopy()
	if with.Annotations == nil {
		with.Annotations = map[string]string{}
	}
	maps.Copy(with.Annotations, added)
	return with, added
}

// isSetOtherwise reports whether another annotation of a Service already makes the setting of a default's key.
func isSetOtherwise(cloud Cloud, given map[string]string, key string) bool {
	for _, row := range cloud.Rows {
		for _, serves := range row.Serves {
			own := append([]string{row.Key}, serves.Rivals...)
			if serves.Portable == key && slices.ContainsFunc(own, func(k string) bool { return given[k] != "" }) {
				return true
			}
			if slices.Contains(own, key) && given[serves.Portable] != "" {
				return true
			}
		}
	}
	return false
}
