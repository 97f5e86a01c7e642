# sparkctl unlink 1
# Runs on the Spark as `sh -s -- DEVICE:INODE PATH ...`, from stdin: removes each file only while it is that very file.
export LC_ALL=C
while [ "$#" -ge 2 ]; do
  case $2 in
    */../*) ;;
    /dev/shm/*) [ "$(stat -c %d:%i -- "$2" 2>/dev/null)" = "$1" ] && rm -f -- "$2" 2>/dev/null ;;
  esac
  shift 2
done
exit 0
