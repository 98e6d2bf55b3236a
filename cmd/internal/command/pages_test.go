package command

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/commands.md")

// TestCommandsPage compares docs/commands.md with the help of the commands.
func TestCommandsPage(t *testing.T) {
	const file = "../../../docs/commands.md"
	var page strings.Builder
	page.WriteString("# Commands\n\nThe help of every command, made from the code. `ordergate help` prints it too.\n")
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			return
		}
		var help strings.Builder
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&page, "\n## %s\n\n```\n", cmd.CommandPath())
		for line := range strings.Lines(help.String()) {
			page.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
		page.WriteString("```\n")
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	for _, cmd := range Root().Commands() {
		add(cmd)
	}
	if *update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page.String() {
		t.Error("docs/commands.md is not the commands' help: go test ./cmd/internal/command -run TestCommandsPage -update")
	}
}
