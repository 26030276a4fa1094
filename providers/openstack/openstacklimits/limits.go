// Package openstacklimits lists the limits of OpenStack's services that this program or its simulator knows.
package openstacklimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

// Rows that are asked by name.
var (
	Name = limits.Limit{
		What: "a name", Path: "*.name", Max: 255, Unit: limits.Characters,
		Source: "max_length of names in octavia/api/v2/types, NAME_FIELD_SIZE in neutron_lib/db/constants.py", Program: "is cut",
	}
	Description = limits.Limit{
		What: "a description", Path: "*.description", Max: 255, Unit: limits.Characters,
		Source: "max_length of descriptions in octavia/api/v2/types, DESCRIPTION_FIELD_SIZE in neutron_lib/db/constants.py", Program: "is cut",
	}
	Routes = limits.Limit{
		What: "routes", Within: "a router", Operation: "/routers/", Max: 30, Unit: limits.Objects, Soft: true,
		Source:  "max_routes in Neutron's configuration, whose default this is",
		Program: limits.Explained, Advice: "have max_routes raised in Neutron's configuration, or use a network plugin that needs no routes",
	}
)

// Table lists all limits.
var Table = limits.Table{
	Name, Description, Routes,
	{
		What: "a tag", Path: "*tags[]", Max: 255, Unit: limits.Characters,
		Source: "max_length of tags in octavia/api/v2/types, MAX_TAG_LEN in neutron/extensions/tagging.py", Program: limits.Below,
	},
}
