package azure

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `(?:create|change) public IP address (\S+)`, Writes: []string{"PUT Microsoft.Network/publicIPAddresses/{name}"}},
	{Change: `(?:create|change) load balancer (\S+)`, Writes: []string{"PUT Microsoft.Network/loadBalancers/{name}"}},
	{Change: `change scale set (\S+)`, Writes: []string{"PUT Microsoft.Compute/virtualMachineScaleSets/{name}"}},
	{Change: `change machine (\S+)`, Writes: []string{"PUT Microsoft.Compute/virtualMachineScaleSets/virtualMachines/{name}"}},
	{Change: `delete load balancer (\S+)`, Writes: []string{"DELETE Microsoft.Network/loadBalancers/{name}"}},
	{Change: `delete public IP address (\S+)`, Writes: []string{"DELETE Microsoft.Network/publicIPAddresses/{name}"}},
	{Change: `create private link service (\S+)`, Writes: []string{"PUT Microsoft.Network/privateLinkServices/{name}"}},
	{Change: `change network security group (\S+)`, Writes: []string{"PUT Microsoft.Network/networkSecurityGroups/{name}"}},
	{Change: `change private link service (\S+)`, Writes: []string{"PUT Microsoft.Network/privateLinkServices/{name}"}},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{Reads: "GET operation", Most: 23, Because: "an operation is polled until it has ended"},
	{
		Reads:   `GET Microsoft.Network/loadBalancers(/\{name\})?`,
		After:   `(PUT|DELETE) Microsoft.Network/(loadBalancers|publicIPAddresses|privateLinkServices)/\{name\}|PUT Microsoft.Compute/.*`,
		Because: "its own changes and those of the machines behind it give a load balancer another ETag",
	},
	{
		Reads:   "GET Microsoft.Network/loadBalancers",
		Most:    1,
		Step:    "families/both",
		Because: "the load balancer of the other family is looked for by itself",
	},
	{
		Reads:   `GET Microsoft.Network/networkSecurityGroups/\{name\}`,
		After:   `PUT Microsoft.Network/networkSecurityGroups/\{name\}`,
		Because: "a security group, which others write too, is narrowed as it is then",
	},
	{
		Reads:   `GET Microsoft.Network/publicIPAddresses(/\{name\})?`,
		After:   `(PUT|DELETE) Microsoft.Network/(publicIPAddresses|loadBalancers)/\{name\}`,
		Because: "an address is made, left and deleted while it is looked at",
	},
	{
		Reads:   "GET Microsoft.Network/privateLinkServices",
		After:   `PUT Microsoft.Network/privateLinkServices/\{name\}`,
		Because: "the alias of a private link service is known once it is made",
	},
	{
		Reads:   `GET Microsoft.Compute/virtualMachineScaleSets/virtualMachines/\{name\}`,
		After:   "PUT Microsoft.Compute/.*",
		Because: "a machine is written whole, and again for another pool",
	},
}
