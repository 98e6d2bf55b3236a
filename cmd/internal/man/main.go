// Program man writes a manual page for each command of ordergate.
//
//	SOURCE_DATE_EPOCH=SECONDS go run ./cmd/internal/man VERSION DIR
//
// The pages have the date of that second, or of today.
package main

import (
	"log"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/ordergate/ordergate/cmd/internal/command"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: man VERSION DIR")
	}
	if err := doc.GenManTree(command.Root(), &doc.GenManHeader{Source: "ordergate " + os.Args[1]}, os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
