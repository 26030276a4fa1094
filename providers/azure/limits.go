package azure

import (
	"fmt"
	"unicode/utf8"
)

// How many characters Azure takes in the name of a network resource or of a part of one, in the name of a tag, and in its value.
const (
	maxPartName = 80
	maxTagName  = 512
	maxTagValue = 256
)

// checkName refuses a name that Azure would refuse; advice says what to do.
func checkName(what, name, advice string) error {
	if n := utf8.RuneCountInString(name); n > maxPartName {
		return fmt.Errorf("%s %s would have a name of %d characters, and Azure takes at most %d: %s", what, name, n, maxPartName, advice)
	}
	return nil
}

// checkNames refuses a load balancer and pools of a Service that would be made under names which Azure refuses. Other parts have names that
// are cut.
func (d *spec) checkNames(lb doc) error {
	const advice = "shorten --cluster-name, or what the cloud config calls load balancers"
	if lb == nil {
		if err := checkName("load balancer", d.LB, advice); err != nil {
			return err
		}
	}
	for _, f := range d.Fronts {
		if byName(docs(lb, "properties", "backendAddressPools"), f.pool) == nil {
			if err := checkName("backend pool", f.pool, advice); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTagSizes refuses tags that Azure would refuse.
func checkTagSizes(tags map[string]string) error {
	for _, key := range sortedKeys(tags) {
		if n := utf8.RuneCountInString(key); n > maxTagName {
			return fmt.Errorf("the name of tag %.20s… has %d characters, and Azure takes at most %d", key, n, maxTagName)
		}
		if n := utf8.RuneCountInString(tags[key]); n > maxTagValue {
			return fmt.Errorf("the value of tag %s has %d characters, and Azure takes at most %d", key, n, maxTagValue)
		}
	}
	return nil
}
