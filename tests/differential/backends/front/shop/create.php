<?php
// A script that creates an order, called by its own path.
require __DIR__ . '/../seen.php';
if (method() === 'POST') {
    create();
}
echo "done\n";
