package azure

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `(?:create|change) public IP address (\S+)`, Writes: []string{"PUT Microsoft.Network/publicIPAddresses/{name}"}},
	{
		Change: `create load balancer (\S+)`,
		Writes: []string{"PUT Microsoft.Network/loadBalancers/{name}"},
		Beside: []string{
			"PUT Microsoft.Compute/virtualMachineScaleSets/{name}",
			"PUT Microsoft.Compute/virtualMachineScaleSets/virtualMachines/{name}",
			"PUT Microsoft.Network/networkSecurityGroups/{name}", "PUT Microsoft.Network/privateLinkServices/{name}",
			"DELETE Microsoft.Network/loadBalancers/{name}", "DELETE Microsoft.Network/publicIPAddresses/{name}",
		},
		Because: "plan ends at the load balancer: its members, the security rules, what is left behind and a link follow from what Azure answers",
	},
	{
		Change: `change load balancer (\S+)`,
		Writes: []string{"PUT Microsoft.Network/loadBalancers/{name}"},
		Beside: []string{
			"PUT Microsoft.Compute/virtualMachineScaleSets/{name}",
			"PUT Microsoft.Compute/virtualMachineScaleSets/virtualMachines/{name}",
			"PUT Microsoft.Network/networkSecurityGroups/{name}", "DELETE Microsoft.Network/publicIPAddresses/{name}",
		},
		Because: "plan ends at the load balancer: its members, the security rules and what is left behind follow from what Azure answers",
	},
	{Change: `change network security group (\S+)`, Writes: []string{"PUT Microsoft.Network/networkSecurityGroups/{name}"}},
	{Change: `change private link service (\S+)`, Writes: []string{"PUT Microsoft.Network/privateLinkServices/{name}"}},
}
