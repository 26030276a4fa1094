package nodes

// bareTag is the value of a tag that has none in the cloud.
const bareTag = "true"

// BareTags returns tags without values as Cloud.Tags does.
func BareTags(tags []string) map[string]string {
	all := make(map[string]string, len(tags))
	for _, tag := range tags {
		all[tag] = bareTag
	}
	return all
}
